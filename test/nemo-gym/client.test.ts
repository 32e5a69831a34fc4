import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { evaluate, nemoGym, type NemoGymOptions, type RolloutRecord } from 'millrace'
import { calls, type Script, ScriptedBackend, temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import { CounterServer } from '../support/nemo-gym/counter-server.ts'
import { scripted } from '../support/replay/stored-runs.ts'

const increment = {
  type: 'function',
  name: 'increment_counter',
  parameters: { type: 'object', properties: {} },
  strict: true,
}
const broken = { ...increment, name: 'broken_tool' }

/** A row as in NeMo Gym's example_session_state_mgmt. */
function row(more: object = {}) {
  const params = { input: [{ role: 'user', content: 'add 1 then add 2' }], tools: [increment, broken] }
  return { responses_create_params: params, initial_count: 3, expected_count: 6, ...more }
}

/** A script that makes these calls one after the other, and then answers. */
function callsInTurn(...turns: Parameters<typeof calls>[0][]): Script {
  return ({ messages }) => {
    const turn = turns[messages.filter(({ role }) => role === 'assistant').length]
    return turn ? calls(turn) : 'Done.'
  }
}

const addsUp = callsInTurn({ increment_counter: { count: 1 } }, { increment_counter: { count: 2 } })

interface Launch {
  readonly server: CounterServer
  readonly lines: readonly (object | string)[]
  readonly script?: Script
  readonly attempts?: number
  readonly agentFields?: object
  readonly agentKind?: string
  readonly gym?: Partial<NemoGymOptions>
  readonly resume?: 'required'
}

async function launch(root: string, options: Launch) {
  const { server, lines, script = addsUp, attempts = 1, agentFields, agentKind = 'simple_agent', gym, resume } = options
  const [config, input] = [join(root, 'config.yaml'), join(root, 'data.jsonl')]
  await mkdir(root, { recursive: true })
  const servers = { counter: { host: '127.0.0.1', port: server.port, entrypoint: 'app.py', domain: 'agent' } }
  const agent = { resources_server: { type: 'resources_servers', name: 'res' }, model_server: '???', ...agentFields }
  const content = { res: { resources_servers: servers }, ag: { responses_api_agents: { [agentKind]: agent } } }
  await writeFile(config, JSON.stringify(content))
  await writeFile(input, lines.map((line) => (typeof line === 'string' ? line : JSON.stringify(line))).join('\n'))
  const backend = new ScriptedBackend(script)
  const evaluation = evaluate({
    ...(await nemoGym({ config, input, cwd: root, ...gym })),
    model: scripted,
    backends: { scripted: [backend] },
    attempts,
    run: { root: join(root, 'runs'), ...(resume && { resume }) },
  })
  return { evaluation, backend }
}

async function recordsOf(root: string, options: Launch): Promise<RolloutRecord[]> {
  const { evaluation } = await launch(root, options)
  const records = await Array.fromAsync(evaluation)
  return records.toSorted((one, other) => one.task.index - other.task.index || one.sample - other.sample)
}

test('rows run with the tools, the state and the verifier of a resources server, a session each', async () => {
  await using runs = await temporaryRuns()
  await using server = await CounterServer.start()
  const lines = [row({ category: 'a' }), row({ initial_count: 0 })]
  const records = await recordsOf(runs.root, { server, lines, attempts: 2 })
  expect(records.map(({ reward, outcome }) => [reward, outcome])).toEqual([
    [1, 'completed'],
    [1, 'completed'],
    [0, 'completed'],
    [0, 'completed'],
  ])
  expect(records[0]?.metrics).toEqual({ counted: 6, was_right: 1, token: 9007199254740992 })
  expect(server.counters.size).toBe(4)
  expect(new Set(server.requests.map(({ cookie }) => cookie)).size).toBe(5)
  expect(JSON.parse(server.bodies('/seed_session')[0] ?? '')).toEqual({
    ...row({ category: 'a' }),
    agent_ref: { name: 'ag' },
    _ng_task_index: 0,
    _ng_rollout_index: 0,
  })
  const verified = server
    .bodies('/verify')
    .map((body) => JSON.parse(body) as { readonly response: { output: object[] } })
  expect(verified[0]?.response).toMatchObject({
    object: 'response',
    status: 'completed',
    tools: row().responses_create_params.tools,
    usage: {
      input_tokens: records[0]?.usage.input,
      input_tokens_details: { cached_tokens: 0 },
      output_tokens: records[0]?.usage.output,
      output_tokens_details: { reasoning_tokens: 0 },
      total_tokens: (records[0]?.usage.input ?? 0) + (records[0]?.usage.output ?? 0),
    },
    output: [
      { type: 'function_call', name: 'increment_counter', arguments: '{"count":1}' },
      { type: 'function_call_output', output: '{"success":true}' },
      { type: 'function_call' },
      { type: 'function_call_output' },
      { type: 'message', role: 'assistant', content: [{ type: 'output_text', text: 'Done.' }] },
    ],
  })
  expect(await server.connections()).toBe(0)
})

test('a tool that fails is an output for the model, and does not lose the session', async () => {
  await using runs = await temporaryRuns()
  await using server = await CounterServer.start({ '/broken_tool': { count: 1, with: 500 } })
  const script = callsInTurn(
    { increment_counter: { count: 1 } },
    { broken_tool: {} },
    { broken_tool: {} },
    { increment_counter: '{"count": ' },
    { increment_counter: { count: 2 } },
  )
  const [record] = await recordsOf(runs.root, { server, lines: [row()], script })
  expect(record).toMatchObject({ reward: 1, toolCalls: 5, toolErrors: 3 })
  const outputs = record?.messages.filter(({ role }) => role === 'tool').map(({ content }) => content)
  expect(outputs).toEqual([
    '{"success":true}',
    '"broken"',
    '{"detail":"Not Found"}',
    expect.stringMatching(/^\{"error":"Invalid tool call arguments: /),
    '{"success":true}',
  ])
})

test('numbers beyond 2^53, and decimals, reach the server and the record as they were written', async () => {
  await using runs = await temporaryRuns()
  await using server = await CounterServer.start()
  const text = JSON.stringify(row()).replace('{', '{"seed":9007199254740993,"weight":1.0,')
  const script = callsInTurn({ increment_counter: '{"count": 3, "id": 9007199254740993}' })
  const [record] = await recordsOf(runs.root, { server, lines: [text], script })
  expect(record).toMatchObject({ reward: 1, info: { nemo_gym: expect.stringContaining('"token":9007199254740993') } })
  expect(server.bodies('/seed_session')[0]).toContain('{"seed":9007199254740993,"weight":1.0,')
  expect(server.bodies('/verify')[0]).toContain('{"seed":9007199254740993,"weight":1.0,')
  expect(server.bodies('/increment_counter')).toEqual(['{"count": 3, "id": 9007199254740993}'])
})

test('a field of a row that the model is not asked with is named in the record', async () => {
  await using runs = await temporaryRuns()
  await using server = await CounterServer.start()
  const { responses_create_params: params } = row()
  const lines = [row({ responses_create_params: { ...params, truncation: 'auto' } }), row()]
  const records = await recordsOf(runs.root, { server, lines })
  expect(records.map(({ info }) => info?.['dropped'])).toEqual([['truncation auto'], undefined])
})

test('a bad row is a failed rollout that names its line, and the others run', async () => {
  await using runs = await temporaryRuns()
  await using server = await CounterServer.start()
  const misspelt = row({ responses_create_params: { ...row().responses_create_params, max_ouput_tokens: 3 } })
  const noCount = row({ initial_count: undefined })
  const lines = [row(), '{"responses_create_params": ', { expected: 1 }, noCount, misspelt, row()]
  const records = await recordsOf(runs.root, { server, lines })
  expect(records.map(({ reward }) => reward)).toEqual([1, null, null, null, null, 1])
  const [, notJson, noParams, refused, unknown] = records.map(({ error }) => error?.message)
  expect(notJson).toMatch(/^data.jsonl line 2: not valid JSON/)
  expect(noParams).toMatch(/^data.jsonl line 3: the row has no `responses_create_params`/)
  expect(refused).toMatch(/seed_session answers 422: \{"detail":\[\{"type":"missing","loc":\["body","initial_count"\]/)
  expect(unknown).toMatch(/^data.jsonl line 5: responses_create_params: NeMo Gym has no field `max_ouput_tokens`; did/)
  expect(records[4]).toMatchObject({ outcome: 'env_error', error: { code: 'task_invalid' } })
})

test('a busy server is asked again to begin a session; a tool call that broke off is made again only in a new attempt', async () => {
  await using runs = await temporaryRuns()
  await using server = await CounterServer.start({
    '/seed_session': { count: 2, with: 503 },
    '/increment_counter': { count: 1, with: 'cut' },
  })
  const [record] = await recordsOf(runs.root, { server, lines: [row()] })
  expect(record).toMatchObject({ reward: 1, attempt: 2 })
  expect(server.bodies('/seed_session')).toHaveLength(4)
  expect(server.bodies('/increment_counter')).toHaveLength(3)
})

test('a server that stays busy, and one that always breaks off, are asked a bounded number of times', async () => {
  await using runs = await temporaryRuns()
  const always = 1_000
  await using busy = await CounterServer.start({ '/seed_session': { count: always, with: 503 } })
  const [refused] = await recordsOf(join(runs.root, 'busy'), { server: busy, lines: [row()] })
  expect(refused).toMatchObject({ outcome: 'env_error', error: { message: expect.stringContaining('answers 503') } })
  expect(busy.bodies('/seed_session')).toHaveLength(4)
  await using cutting = await CounterServer.start({ '/increment_counter': { count: always, with: 'cut' } })
  const [lost] = await recordsOf(join(runs.root, 'broken'), { server: cutting, lines: [row()] })
  // The first attempt and the two that a run allows beside it, each in a session of its own.
  expect(lost).toMatchObject({ outcome: 'tool_infra_error', attempt: 3 })
  expect(cutting.bodies('/increment_counter')).toHaveLength(3)
  expect(cutting.bodies('/seed_session')).toHaveLength(3)
})

test('a verifier that fails leaves no reward', async () => {
  await using runs = await temporaryRuns()
  await using server = await CounterServer.start({ '/verify': { count: 1, with: 500 } })
  const records = await recordsOf(runs.root, { server, lines: [row(), row()], gym: {} })
  expect(records.map(({ outcome }) => outcome).toSorted()).toEqual(['completed', 'reward_error'])
  const failed = records.find(({ outcome }) => outcome === 'reward_error')
  expect(failed?.error?.message).toMatch(/verify answers 500: "broken"/)
})

test('a run that is stopped cuts off its tool calls, and leaves no connection', async () => {
  await using runs = await temporaryRuns()
  await using server = await CounterServer.start({ '/increment_counter': { count: 8, with: 'hang' } })
  const { evaluation } = await launch(runs.root, { server, lines: [row(), row()] })
  await expect.poll(() => server.bodies('/increment_counter')).toHaveLength(2)
  evaluation.stop()
  await evaluation.summary()
  await expect.poll(() => server.left).toBe(2)
  expect(await server.connections()).toBe(0)
})

test('a run is continued after its server has started again at another address', async () => {
  await using runs = await temporaryRuns()
  const lines = [row(), row()]
  await using server = await CounterServer.start({ '/increment_counter': { count: 8, with: 'hang' } })
  const { evaluation } = await launch(runs.root, { server, lines })
  await expect.poll(() => server.bodies('/increment_counter')).toHaveLength(2)
  evaluation.stop()
  const { run } = await evaluation.summary()
  expect(run).toMatch(/^ag--/)
  await using again = await CounterServer.start()
  const resumed = await launch(runs.root, { server: again, lines, resume: 'required' })
  expect(await resumed.evaluation.summary()).toMatchObject({ run, end: 'complete', rollouts: 2, score: { mean: 1 } })
  expect(again.bodies('/seed_session')).toHaveLength(2)
})

test('rows of a benchmark, which have no messages, get those of its prompt_config', async () => {
  await using runs = await temporaryRuns()
  await using server = await CounterServer.start()
  await mkdir(join(runs.root, 'prompts'))
  await writeFile(join(runs.root, 'prompts/math.yaml'), 'user: |-\n  Answer in \\boxed{{}}.\n\n  {question}\n')
  const bare = { question: 'Is {x} even?', expected_answer: '7', initial_count: 1, expected_count: 1 }
  const lines = [bare, { ...bare, question: undefined }]
  const datasets = (path: string) => ({ datasets: [{ name: 'aime', type: 'benchmark', prompt_config: path }] })
  const options = { server, lines, script: () => 'Yes.', agentFields: datasets('prompts/math.yaml') }
  const records = await recordsOf(runs.root, options)
  const input = [{ role: 'user', content: 'Answer in \\boxed{}.\n\nIs {x} even?' }]
  expect(records.map(({ reward }) => reward)).toEqual([1, null])
  expect(records[0]?.messages[0]).toEqual(input[0])
  expect(records[1]?.error?.message).toMatch(
    /^data.jsonl line 2: the prompt has the field \{question\}, and the row only/,
  )
  expect(JSON.parse(server.bodies('/verify')[0] ?? '')).toMatchObject({ ...bare, responses_create_params: { input } })

  const missing = { ...options, agentFields: datasets('gone.yaml') }
  const [failed] = await recordsOf(join(runs.root, 'gone'), missing)
  expect(failed?.error?.message).toContain('the prompt of its agent is missing: there is no file gone.yaml in')
  const promptConfig = join(runs.root, 'prompts/math.yaml')
  const [given] = await recordsOf(join(runs.root, 'given'), { ...missing, gym: { promptConfig } })
  expect(given).toMatchObject({ reward: 1 })
})

test('max_steps of the agent ends a rollout, which is verified', async () => {
  await using runs = await temporaryRuns()
  await using server = await CounterServer.start({ '/seed_session': { count: 1, with: 503 } })
  const [record] = await recordsOf(runs.root, { server, lines: [row()], agentFields: { max_steps: 1 } })
  expect(record).toMatchObject({ turns: 1, outcome: 'completed', metrics: { counted: 4, nemo_gym_retries: 1 } })
})

test('a number of steps that a variable gives is text, and any other text is refused', async () => {
  await using runs = await temporaryRuns()
  await using server = await CounterServer.start()
  const options = { server, lines: [row()], agentFields: { max_steps: '${oc.env:STEPS}' } }
  const [record] = await recordsOf(runs.root, { ...options, gym: { env: { STEPS: '1' } } })
  expect(record).toMatchObject({ turns: 1, metrics: { counted: 4 } })
  const refused = launch(runs.root, { ...options, gym: { env: { STEPS: 'few' } } })
  const path = 'ag.responses_api_agents.simple_agent.max_steps'
  await expect(refused).rejects.toThrow(`[config_invalid] ${path} is "few", which is no whole number`)
})

test.each([
  ['an answer that the verifier accepts is not verified again', [{ reward: 1, needs_correction: false }], 1, 1],
  [
    'a correction that the verifier asks for goes on with its prompt',
    [
      { reward: 0.2, needs_correction: true, correction_prompt: 'Prove it.' },
      { reward: 0.7, needs_correction: false },
    ],
    2,
    0.7,
  ],
  ['without a prompt nothing is corrected', [{ reward: 0.3, needs_correction: true }], 1, 0.3],
  ['a verifier that says nothing of corrections wants none', [{ reward: 0.3 }], 1, 0.3],
])('proof_refinement_agent: %s', async (_what, replies, verified, reward) => {
  await using runs = await temporaryRuns()
  await using server = await CounterServer.start()
  // A judge that changes its mind must not be asked again.
  server.verifier = (request) => replies[request - 1] ?? { reward: 0, needs_correction: true, correction_prompt: 'No.' }
  const [record] = await recordsOf(runs.root, {
    server,
    lines: [row()],
    script: () => 'It holds.',
    agentKind: 'proof_refinement_agent',
    agentFields: { max_correction_turns: '2' },
  })
  expect(record).toMatchObject({ reward, outcome: 'completed' })
  expect(server.bodies('/verify')).toHaveLength(verified)
  // The answers are equally long, and each is a response of its own.
  const sent = server.bodies('/verify').map((body) => JSON.parse(body) as { response: { output: []; usage: object } })
  for (const { response } of sent) {
    expect(response.output).toHaveLength(1)
    expect(response.usage).toMatchObject({ output_tokens: (record?.usage.output ?? 0) / verified })
  }
  const said = record?.messages.filter(({ role }) => role === 'user').map(({ content }) => content)
  expect(said?.slice(1)).toEqual(verified > 1 ? ['Prove it.'] : [])
})

test('a request that is sent on within the server is made there, and any other redirection is an error', async () => {
  await using runs = await temporaryRuns()
  await using server = await CounterServer.start({
    '/seed_session': { count: 1, with: 307 },
    '/verify': { count: 2, with: 308 },
    '/increment_counter': { count: 1, with: 302 },
  })
  const [record] = await recordsOf(runs.root, { server, lines: [row()], attempts: 1 })
  expect(server.bodies('/seed_session')).toHaveLength(2)
  expect(record).toMatchObject({ toolErrors: 1, outcome: 'reward_error' })
  expect(record?.error?.message).toMatch(/verify answers 308/)
})

test('a server that does not answer, and a row for an unknown agent, are told', async () => {
  await using runs = await temporaryRuns()
  await using server = await CounterServer.start()
  const url = 'http://127.0.0.1:1'
  const refused = launch(runs.root, { server, lines: [row()], gym: { url } })
  await expect(refused).rejects.toThrow(/\[tool_infra\] http:\/\/127\.0\.0\.1:1\/ cannot be reached: .* Start it/)
  const lines = [row({ agent_ref: { name: 'agg' } }), row({ agent_ref: { name: 'ag' } })]
  const records = await recordsOf(runs.root, { server, lines })
  expect(records.map(({ reward }) => reward)).toEqual([null, 1])
  expect(records[0]?.error?.message).toContain('the configuration has no agent agg; did you mean ag?')
  const chosen = await recordsOf(runs.root, { server, lines, gym: { agentName: 'ag' } })
  expect(chosen.map(({ reward }) => reward)).toEqual([1, 1])
})
