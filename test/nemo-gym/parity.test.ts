/** The same conversation through every way in: what it comes to is the same, field by field. */
import {
  type Agent,
  defineEnvironment,
  evaluate,
  type Message,
  type NamedAgent,
  type RolloutRecord,
  textOf,
  type Usage,
  z,
} from 'millrace'
import { calls, ScriptedBackend, temporaryRuns, type Script, type ScriptedAnswer } from 'millrace/testing'
import { beforeAll, describe, expect, test } from 'vitest'
import { agentNamed } from '../../src/agents/index.ts'
import type { BackendRequest } from '../../src/apis/index.ts'
import { isJsonObject, type Json, type JsonObject } from '../../src/schema/index.ts'
import { type GymOptions, RolloutServer, RolloutService, type ServiceOptions } from '../../src/serve/index.ts'
import { agents } from '../fixtures/every-agent.ts'
import { fixture } from '../support/cli/millrace-process.ts'
import { type Step, stepsOfItems, stepsOfMessage } from '../support/nemo-gym/canonical-episode.ts'
import { scripted } from '../support/replay/stored-runs.ts'
import { TestServer } from '../support/serve/test-server.ts'

const task = { from: 5, wanted: 12, big: 'pear' }

const prompt = (): Message[] => [
  { role: 'system', content: 'You keep a ledger.' },
  { role: 'user', content: 'Bring it to 12.' },
]

const ledger = defineEnvironment({
  name: 'ledger',
  task: z.object({ from: z.number(), wanted: z.number(), big: z.string() }),
  tasks: () => [task],
  setup: ({ task: { from } }) => ({ count: from }),
  prompt,
  tools: {
    add: {
      parameters: z.object({ by: z.number() }),
      resume: 'rerun',
      run: ({ by }, { state, metric }) => {
        metric('additions', 1)
        return { count: (state.count += by) }
      },
    },
    fail: {
      parameters: z.object({}),
      resume: 'rerun',
      run: () => {
        throw new Error('the ink is dry')
      },
    },
  },
  feedback: ({ reward }) => (reward >= 1 ? undefined : `That is worth ${reward}. Again.`),
  reward: {
    right: ({ state, task: { wanted } }) => state.count === wanted,
    said: { weight: 0.25, score: ({ answer }) => /\d/.test(answer) },
    length: { weight: 0, score: ({ messages }) => messages.length },
  },
})

const usage = (step: number): Usage => ({
  calls: 1,
  input: 100 + step,
  cachedInput: 7 * step,
  output: 11 + step,
  reasoning: step,
})

/** A script that says these in turn in each conversation, every one with its own usage. */
function inTurn(...answers: readonly ScriptedAnswer[]): Script {
  return ({ messages }) => {
    const step = messages.filter(({ role }) => role === 'assistant').length
    const answer = answers[step] ?? 'Nothing more.'
    const parts = typeof answer === 'object' && 'message' in answer ? answer : { message: messageOf(answer) }
    return { usage: usage(step), ...parts }
  }
}

function messageOf(answer: Exclude<ScriptedAnswer, { message: unknown }>): Extract<Message, { role: 'assistant' }> {
  return typeof answer === 'string' ? { role: 'assistant', content: answer } : answer
}

const isSystem = ([first]: readonly Message[], text: string): boolean =>
  first !== undefined && textOf(first).includes(text)

/** Two calls in one turn, an error, a thought, arguments that JSON.parse would change. */
const keepsLedger = inTurn(
  { ...calls({ add: { by: 3 } }, { fail: {} }), content: 'Let me see.', reasoning_content: 'Five and three.' },
  calls({ add: '{"by": 4.0}' }, { add: '{"by": "much"}' }),
  { role: 'assistant', content: 'It is 12 now.', reasoning_content: 'Done, I think.' },
)

const refines = inTurn(calls({ add: { by: 3 } }), 'It is 8.', calls({ add: { by: 4 } }), 'It is 12.')

const orchestrates: Script = (request) => {
  if (!isSystem(request.messages, 'You add.')) {
    return inTurn(calls({ clerk: { task: 'Add 3.' } }, { clerk: { task: 'Add 4.' } }), 'Both added 7 in all.')(request)
  }
  const by = Number(/\d+/.exec(textOf(request.messages[1] as Message))?.[0])
  return inTurn(calls({ add: { by } }), `Added ${by}.`)(request)
}

const reflects: Script = (request) => {
  if (!isSystem(request.messages, 'You review')) return refines(request)
  return inTurn(textOf(request.messages.at(-1) as Message).includes('It is 12.') ? 'APPROVED' : 'It is too little.')(
    request,
  )
}

const plans = inTurn(
  JSON.stringify([
    { id: 'E1', tool: 'add', arguments: { by: 3 } },
    { id: 'E2', tool: 'add', arguments: { by: 4 } },
  ]),
  'It is 12.',
)

const userTalks: Script = (request) =>
  isSystem(request.messages, 'You play the user')
    ? inTurn('Add 7.', 'Is it done?', 'Thanks. ###STOP###')(request)
    : inTurn(calls({ add: { by: 7 } }), 'Added 7.', 'It is 12.')(request)

interface Case {
  readonly agent: NamedAgent
  readonly script: Script
  /** What it must come to, so that no route is compared with another one that is as wrong. */
  readonly comesTo: Partial<Told>
}

const right = { outcome: 'completed', reward: 1.25 }

const cases: Readonly<Record<string, Case>> = {
  'toolLoop with several turns, calls side by side and errors': {
    agent: { name: 'toolLoop' },
    script: keepsLedger,
    comesTo: { ...right, components: { right: 1, said: 1 }, metrics: { additions: 1 } },
  },
  refine: { agent: { name: 'refine', turns: 3 }, script: refines, comesTo: right },
  'orchestrate, with two children': {
    agent: {
      name: 'orchestrate',
      tools: [],
      agents: { clerk: { description: 'Adds.', instructions: 'You add.', tools: ['add'], share: 0.3 } },
      atOnce: 1,
    },
    script: orchestrates,
    comesTo: right,
  },
  'parallel, with three children': {
    agent: { name: 'parallel', attempts: 3 },
    script: inTurn({ ...calls({ add: { by: 3 } }) }, 'Answer: 12'),
    comesTo: { outcome: 'completed', reward: 0.25 },
  },
  'reflect, with a critic': { agent: { name: 'reflect' }, script: reflects, comesTo: right },
  plan: { agent: { name: 'plan' }, script: plans, comesTo: right },
  userSimulator: {
    agent: { name: 'userSimulator', persona: 'You want 7 more.' },
    script: userTalks,
    comesTo: right,
  },
  singleTurn: { agent: { name: 'singleTurn' }, script: inTurn('It is 5.'), comesTo: { reward: 0.25 } },
  nonExecuting: {
    agent: { name: 'nonExecuting' },
    script: keepsLedger,
    comesTo: { outcome: 'completed', reward: 0, metrics: {} },
  },
  'toolLoop that uses up its turns': {
    agent: { name: 'toolLoop' },
    script: inTurn(...Array.from({ length: 9 }, () => calls({ add: { by: 1 } }))),
    comesTo: { outcome: 'max_turns' },
  },
  'toolLoop whose reply is cut': {
    agent: { name: 'toolLoop' },
    script: inTurn(calls({ add: { by: 7 } }), { message: messageOf('It is 1'), finishReason: 'length' }),
    comesTo: { outcome: 'max_tokens' },
  },
  'toolLoop whose model fails in its second turn': {
    agent: { name: 'toolLoop' },
    script: (request) => {
      if (request.messages.some(({ role }) => role === 'tool')) throw new Error('no more today')
      return keepsLedger(request)
    },
    comesTo: { outcome: 'model_error', reward: null },
  },
}

/** What a way in says of a rollout. What it does not say is left out, and is not compared. */
interface Told {
  readonly steps: readonly Step[]
  readonly usage: JsonObject
  readonly isComplete: boolean
  readonly model: string
  readonly outcome: string
  readonly reward: number | null
  readonly components: JsonObject
  readonly metrics: JsonObject
}

interface Servers {
  readonly plain: TestServer
  /** Keeps tokens, so that a codec thread writes its replies from what is stored. */
  readonly capturing: TestServer
}

interface Answer {
  readonly told: Partial<Told>
  /** Whose model was asked. */
  readonly backend: ScriptedBackend
  readonly setCookie?: string | undefined
}

const sampling = { temperature: 0.5, topP: 0.9, maxTokens: 400 }
const asParams = { temperature: 0.5, top_p: 0.9, max_output_tokens: 400 }
const serverOptions = { retries: 0, limits: { maxTurns: 8 } } as const

/** The ways in. A further one is a further entry: `told` has whatever it says. */
const routes: Readonly<Record<string, (servers: Servers, played: Case) => Promise<Answer>>> = {
  'evaluate()': async (_servers, { agent, script }) => {
    await using runs = await temporaryRuns()
    const backend = new ScriptedBackend(script)
    const run = evaluate({
      ...serverOptions,
      environment: ledger,
      agent,
      model: scripted,
      backends: { scripted: [backend] },
      sampling,
      preflight: false,
      run: { root: runs.root },
    })
    const [record] = await Array.fromAsync(run)
    return { told: toldByRecord(record as RolloutRecord), backend }
  },
  'POST /v1/rollouts': async ({ plain }) => await postRollout(plain, { task, sampling }),
  'POST /v1/rollouts with the messages': async ({ plain }) =>
    await postRollout(plain, { task, sampling, messages: prompt() }),
  'POST /run with the prompt of the environment': async ({ plain }) => await runRow(plain, '/run', []),
  'POST /run with the messages': async ({ plain }) => await runRow(plain, '/run', prompt() as unknown as Json[]),
  'POST /run, written from the store': async ({ capturing }) => await runRow(capturing, '/run', []),
  'POST /agents/ledger/run': async ({ plain }) => await runRow(plain, '/agents/ledger/run', []),
  'POST /v1/responses with the prompt of the environment': async ({ plain }) => await respond(plain, []),
  'POST /v1/responses with the messages': async ({ plain }) => await respond(plain, prompt() as unknown as Json[]),
  'POST /v1/responses, written from the store': async ({ capturing }) => await respond(capturing, []),
  'POST /v1/responses, streamed': async ({ plain }) => await respondStreamed(plain),
}

async function postRollout(server: TestServer, request: object): Promise<Answer> {
  const { body, headers } = await server.post(request)
  return { told: toldByRecord(body as unknown as RolloutRecord), backend: server.backend, setCookie: cookieIn(headers) }
}

async function runRow(server: TestServer, path: string, input: readonly Json[]): Promise<Answer> {
  const row = { responses_create_params: { input, ...asParams }, ...task, agent_ref: { name: 'ledger' } }
  const { status, body, headers } = await server.send('POST', path, row)
  expect(status).toBe(200)
  return { told: toldByRun(body as JsonObject), backend: server.backend, setCookie: cookieIn(headers) }
}

/** The agent as a model: its failure has no episode. */
async function respond(server: TestServer, input: readonly Json[]): Promise<Answer> {
  const { status, body, headers } = await server.send('POST', '/v1/responses', { input, ...asParams, task })
  const told = status === 200 ? toldByResponse(body as JsonObject) : {}
  return { told, backend: server.backend, setCookie: cookieIn(headers) }
}

async function respondStreamed({ httpServer, backend }: TestServer, input: readonly Json[] = []): Promise<Answer> {
  const reply = await fetch(`${httpServer.url}/v1/responses`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ input, ...asParams, task, stream: true }),
  })
  const setCookie = reply.headers.getSetCookie()[0]
  const events = (await reply.text()).split('\n').flatMap((line): JsonObject[] => {
    return line.startsWith('data: ') ? [JSON.parse(line.slice(6)) as JsonObject] : []
  })
  const { response } = events.at(-1) ?? {}
  if (!isJsonObject(response)) return { told: {}, backend, setCookie }
  const told = toldByResponse(response)
  const items = events.filter(({ type }) => type === 'response.output_item.done').map(({ item = null }) => item)
  // The words of a user that come first may have been the prompt: they are only in the last event.
  expect(told.steps.slice(-stepsOfItems(items).length)).toEqual(stepsOfItems(items))
  return { told, backend, setCookie }
}

function cookieIn(headers: Record<string, string | string[] | undefined>): string | undefined {
  return [headers['set-cookie'] ?? []].flat().join('\n') || undefined
}

function toldByRecord(record: RolloutRecord, promptLength = prompt().length): Told {
  const { messages, outcome, reward, rewards, metrics, usage: used, model } = record
  const components = Object.entries(rewards).map(([name, { score }]) => [name, score] as const)
  return {
    steps: messages.slice(promptLength).flatMap(stepsOfMessage),
    usage: { input: used.input, cached: used.cachedInput, output: used.output, reasoning: used.reasoning },
    isComplete: outcome !== 'max_tokens' && outcome !== 'model_error',
    model,
    outcome,
    reward,
    // One alone is the reward.
    components: Object.fromEntries(components.length > 1 ? components : []),
    metrics,
  }
}

/** Beside the fields of the wire and the row's own, a result has its metrics. */
function toldByRun(body: JsonObject): Partial<Told> {
  const {
    responses_create_params: _params,
    response,
    reward = null,
    reward_components: components = {},
    outcome = null,
    _ng_failure_class: failure = null,
    _ng_failure_terminal: _terminal,
    error: _error,
    ...rest
  } = body
  const metrics = Object.entries(rest).filter(([name]) => !Object.hasOwn(task, name))
  return {
    ...toldByResponse(response as JsonObject),
    outcome: String(failure ?? outcome),
    reward: reward as number | null,
    components: components as JsonObject,
    // A failure has none.
    ...(failure === null && { metrics: Object.fromEntries(metrics) }),
  }
}

/** A response whose output is a whole episode. */
function toldByResponse(response: JsonObject): Pick<Told, 'steps' | 'usage' | 'isComplete' | 'model'> {
  const { output, usage: used, status, model, incomplete_details: cut } = response
  if (!isJsonObject(used)) throw new Error('the response has no usage')
  const { input_tokens: input = 0, output_tokens: written = 0, total_tokens: total } = used
  expect(total).toBe(Number(input) + Number(written))
  expect(isJsonObject(cut)).toBe(status === 'incomplete')
  return {
    steps: stepsOfItems(output as Json[]),
    usage: {
      input,
      cached: (used['input_tokens_details'] as JsonObject)['cached_tokens'] ?? null,
      output: written,
      reasoning: (used['output_tokens_details'] as JsonObject)['reasoning_tokens'] ?? null,
    },
    isComplete: status === 'completed',
    model: String(model),
  }
}

/** What the model was asked, without what differs with each rollout: its seed. */
function askedOf({ messages, tools, toolChoice, sampling: { seed: _seed, ...rest } }: BackendRequest): string {
  return JSON.stringify({ messages, tools, toolChoice, sampling: rest })
}

/** The case whose turn it is: one server plays all of them, because its start takes longer than all rollouts. */
let playing: Case | undefined

function current(): Case {
  if (!playing) throw new Error('no case is played')
  return playing
}

async function startServer(nemoGym: GymOptions, options: Partial<ServiceOptions> = {}): Promise<TestServer> {
  const agent: Agent = (context) => agentNamed(current().agent)(context)
  const environment = defineEnvironment({ ...ledger, agent })
  return await TestServer.start((request) => current().script(request), {
    ...serverOptions,
    environment,
    nemoGym,
    ...options,
  })
}

describe('through every way in', () => {
  let servers: Servers | undefined
  beforeAll(async () => {
    await using started = new AsyncDisposableStack()
    const plain = started.use(await startServer({ failures: 'class' }))
    const capturing = started.use(await startServer({ failures: 'class' }, { captureTokens: true }))
    servers = { plain, capturing }
    const ends = started.move()
    return () => ends.disposeAsync()
  })

  test.each(Object.entries(cases))('%s comes to the same', async (_name, played) => {
    if (!servers) throw new Error('the servers are there only while tests run')
    playing = played
    const seen: Record<string, { readonly told: Partial<Told>; readonly asked: readonly string[] }> = {}
    for (const [route, ask] of Object.entries(routes)) {
      const before = new Map(Object.values(servers).map(({ backend }) => [backend, backend.requests.length]))
      const { told, backend, setCookie } = await ask(servers, played)
      seen[route] = { told, asked: backend.requests.slice(before.get(backend)).map(askedOf).toSorted() }
      if (!route.includes('/v1/rollouts') && route.startsWith('POST'))
        expect(setCookie, route).toMatch(/^Millrace___ledger=/)
    }
    const { told: reference = {}, asked } = seen['evaluate()'] ?? {}
    expect(reference).toMatchObject(played.comesTo)
    expect(asked).not.toHaveLength(0)
    for (const [route, answer] of Object.entries(seen)) {
      const names = Object.keys(answer.told) as (keyof Told)[]
      const expected = Object.fromEntries(names.map((name) => [name, reference[name]]))
      expect(answer, route).toEqual({ told: expected, asked })
    }
  })
})

test.for([
  ['toolLoop', [true, true, false]],
  ['parallel', [false]],
] as const)('replies in the prompt of %s are no part of the output', async ([name, calledAtFirst]) => {
  playing = { agent: { name }, script: inTurn('not asked', calls({ add: { by: 7 } }), 'It is 12.'), comesTo: {} }
  const given = [...prompt(), { role: 'assistant', content: 'To 12?' }, { role: 'user', content: 'Yes.' }]
  const input = given as unknown as Json[]
  for (const captureTokens of [false, true]) {
    await using server = await startServer({ failures: 'class' }, { captureTokens })
    const { told: ofRun } = await runRow(server, '/run', input)
    expect(ofRun.reward).toBe(name === 'toolLoop' ? 1.25 : 0.25)
    for (const { told } of [await respond(server, input), await respondStreamed(server, input), { told: ofRun }]) {
      expect(told.steps?.map((step) => !('said' in step))).toEqual(calledAtFirst)
      expect(told.steps?.at(-1)).toEqual({ said: 'It is 12.', by: 'assistant' })
    }
  }
})

test('on workers every agent comes to the same as in an evaluation on this thread', async () => {
  await using runs = await temporaryRuns()
  const options = { environment: fixture('every-agent.ts'), model: 'sim', seed: 7, preflight: false }
  const run = evaluate({ ...options, run: { root: runs.root, name: 'evaluated' } })
  const records = (await Array.fromAsync(run)).toSorted((one, other) => one.task.index - other.task.index)
  await using service = await RolloutService.open({ ...options, workers: 1, run: { root: runs.root, name: 'served' } })
  await using httpServer = await RolloutServer.open({ service, port: 0, nemoGym: { failures: 'class' } })
  const played: unknown[] = []
  for (const agent of Object.keys(agents)) {
    const body = JSON.stringify({ responses_create_params: { input: [] }, agent })
    const headers = { 'content-type': 'application/json' }
    const response = await fetch(`${httpServer.url}/run`, { method: 'POST', headers, body })
    const { agent: _row, ...reply } = (await response.json()) as JsonObject
    played.push(toldByRun(reply))
  }
  // Prompts differ in length; none has a reply in it.
  const promptOf = ({ messages }: RolloutRecord) =>
    messages.findIndex(({ role }) => role !== 'system' && role !== 'user')
  expect(records).toHaveLength(played.length)
  expect(played).toEqual(records.map((record) => toldByRecord(record, record.promptLength ?? promptOf(record))))
  await service.close()
})

describe('every reply of NeMo Gym’s wire sets the cookie of its agent', () => {
  const row = { responses_create_params: { input: [] }, ...task }
  const bodies: Readonly<Record<string, readonly [path: string, body: unknown, status: number]>> = {
    'a result': ['/run', row, 200],
    'a rollout that fails': ['/run', { ...row, big: 'broken' }, 500],
    'no JSON': ['/run', '{', 422],
    'no body': ['/run', undefined, 422],
    'a row with an unknown parameter': ['/run', { ...row, responses_create_params: { foo: 1 } }, 422],
    'a row that is no task': ['/run', { responses_create_params: { input: [] } }, 422],
    'a row that is too large': ['/run', { ...row, big: 'x'.repeat(400_000) }, 413],
    'metrics of nothing': ['/aggregate_metrics', { verify_responses: [] }, 200],
    'metrics of what has none': ['/aggregate_metrics', { verify_responses: 7 }, 422],
    'a response': ['/v1/responses', { input: [], task }, 200],
    'a response that is streamed': ['/v1/responses', { input: [], task, stream: true }, 200],
    'a response that fails': ['/v1/responses', { input: [], task: { ...task, big: 'broken' } }, 500],
    'a response to no task': ['/v1/responses', { input: [] }, 422],
    'a response to no JSON': ['/v1/responses', '{', 422],
    'a session': ['/seed_session', row, 200],
    'a session of no task': ['/seed_session', {}, 422],
    'a tool without a session': ['/add', { by: 1 }, 400],
    'a tool that does not exist': ['/subtract', {}, 404],
    'a verification of nothing': ['/verify', row, 422],
  }

  test.each(['', '/agents/ledger'])('under "%s"', async (base) => {
    const script: Script = () => {
      throw new Error('no model today')
    }
    await using server = await startServer({ failures: 'status' }, { bounds: { maxBodyBytes: 300_000 } })
    const seen: Record<string, unknown> = {}
    for (const [what, [path, body, status]] of Object.entries(bodies)) {
      playing = { agent: { name: 'toolLoop' }, script: status === 200 ? keepsLedger : script, comesTo: {} }
      const { status: got, setCookie } = await postRaw(server, base + path, body)
      seen[what] = [got, setCookie?.startsWith('Millrace___ledger=')]
    }
    expect(seen).toEqual(
      Object.fromEntries(Object.entries(bodies).map(([what, [, , status]]) => [what, [status, true]])),
    )
  })
})

async function postRaw(server: TestServer, path: string, body: unknown) {
  const { status, headers } = await fetch(server.httpServer.url + path, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    ...(body !== undefined && { body: typeof body === 'string' ? body : JSON.stringify(body) }),
  })
  return { status, setCookie: headers.getSetCookie()[0] }
}
