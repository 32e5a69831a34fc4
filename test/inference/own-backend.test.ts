import { defineEnvironment, evaluate, MillraceError, z, type Backend, type BackendReply } from 'millrace'
import { temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'

/** An engine in this process, as a program that trains would have it. */
class Engine implements Backend {
  readonly name = 'engine'
  readonly #reply: (call: number) => BackendReply
  calls = 0
  isClosed = false

  constructor(reply: (call: number) => BackendReply = () => hello) {
    this.#reply = reply
  }

  async send(): Promise<BackendReply> {
    if (this.isClosed) throw new Error('the engine is closed')
    this.calls += 1
    return this.#reply(this.calls)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.isClosed = true
  }
}

const hello: BackendReply = {
  message: { role: 'assistant', content: 'hello' },
  finishReason: 'stop',
  usage: { calls: 1, input: 1, cachedInput: 0, output: 1, reasoning: 0 },
}

const environment = defineEnvironment({
  name: 'greeting',
  task: z.object({ n: z.number() }),
  tasks: () => [{ n: 1 }, { n: 2 }],
  prompt: ({ task }) => `Greet ${task.n}.`,
  reward: ({ answer }) => answer === 'hello',
})

const model = { name: 'policy' }

test('one engine serves several runs, and only its owner closes it', async () => {
  await using runs = await temporaryRuns()
  await using engine = new Engine()
  for (const step of [1, 2]) {
    const run = { root: runs.root, name: `step-${step}` }
    const summary = await evaluate({ environment, model, backends: { policy: [engine] }, run }).summary()
    expect(summary.outcomes).toMatchObject({ completed: 2 })
  }
  expect(engine.isClosed).toBe(false)
})

test('a judge that refuses is found before the run starts, after one request to the policy', async () => {
  await using runs = await temporaryRuns()
  await using engine = new Engine()
  await using refusing = new Engine(() => {
    throw new MillraceError('model_auth', 'not with this key')
  })
  const backends = { policy: [engine], strict: [refusing] }
  const options = { environment, model, models: { strict: {} }, backends, run: { root: runs.root } }
  await expect(evaluate({ ...options, judge: 'strict' }).summary()).rejects.toMatchObject({ code: 'model_auth' })
  expect(engine.calls).toBe(1)
  // Nobody is known to ask a model that is only named.
  expect(await evaluate(options).summary()).toMatchObject({ outcomes: { completed: 2 } })
  expect(refusing.calls).toBe(1)
})

test('results name the judge models of the run and of the reward', async () => {
  await using runs = await temporaryRuns()
  await using engine = new Engine()
  const judged = defineEnvironment({
    name: 'judged',
    task: z.object({ n: z.number() }),
    tasks: () => [{ n: 1 }, { n: 2 }],
    prompt: ({ task }) => `Greet ${task.n}.`,
    reward: async ({ task, judge }) => {
      const messages = [{ role: 'user' as const, content: 'Is it good?' }]
      await judge({ messages })
      if (task.n === 2) await judge({ messages, model: 'lenient' })
      return 1
    },
  })
  const evaluation = evaluate({
    environment: judged,
    model,
    judge: 'strict',
    models: { strict: {}, lenient: {} },
    backends: { policy: [engine], strict: [engine], lenient: [engine] },
    run: { root: runs.root },
    concurrency: 1,
  })
  const records = await Array.fromAsync(evaluation)
  expect(records.map(({ judgeModels }) => judgeModels)).toEqual([['strict'], ['strict', 'lenient']])
  expect((await evaluation.summary()).judgeModels).toEqual(['strict', 'lenient'])
})

test('a judge without a name is refused', async () => {
  const run = evaluate({ environment, model, judge: ' ', backends: { policy: [new Engine()] } })
  await expect(run.summary()).rejects.toMatchObject({
    code: 'config_invalid',
    rawMessage: expect.stringContaining('the judge has no name') as string,
  })
})

test('an error thrown by a custom backend is a failed try, not a failed agent', async () => {
  await using runs = await temporaryRuns()
  await using engine = new Engine((call) => {
    if (call === 1) throw new TypeError('fetch failed')
    return hello
  })
  const options = {
    environment,
    preflight: false,
    retries: 0,
    backends: { policy: [engine] },
    run: { root: runs.root },
  }
  const summary = await evaluate({ ...options, model }).summary()
  expect(summary).toMatchObject({ outcomes: { completed: 2 }, tries: { calls: 2, tries: 3 } })
  await using broken = new Engine(() => {
    throw new TypeError('fetch failed')
  })
  const impatient = { ...model, maxTries: 1 }
  const run = { root: runs.root, name: 'broken' }
  const failed = await evaluate({ ...options, model: impatient, backends: { policy: [broken] }, run }).summary()
  const reason = expect.stringMatching(
    /^the backend engine threw TypeError at \S+own-backend\.test\.ts:\d+: fetch failed$/,
  ) as string
  expect(failed).toMatchObject({ outcomes: { model_error: 2 }, reasons: { model_error: reason } })
})

test('attempts that fail at once repeatedly do not block the event loop', async () => {
  await using runs = await temporaryRuns()
  await using broken = new Engine(() => {
    throw new Error('out of memory')
  })
  const run = evaluate({
    environment,
    model: { ...model, maxTries: 1 },
    backends: { policy: [broken] },
    preflight: false,
    retries: 1_000_000,
    run: { root: runs.root },
  })
  await run.started
  // A loop that is kept busy never comes to it.
  setTimeout(() => run.stop(), 1)
  expect((await run.summary()).end).toBe('stopped')
})

test('a custom backend serves a model given by name, and a misspelt name is refused before any request', async () => {
  await using runs = await temporaryRuns()
  await using engine = new Engine()
  const options = { environment, model: 'policy', run: { root: runs.root } }
  const summary = await evaluate({ ...options, backends: { policy: [engine] } }).summary()
  expect(summary.outcomes).toMatchObject({ completed: 2 })
  engine.calls = 0
  const served = { name: 'policy', simulator: {} }
  const misspelt = evaluate({ ...options, model: served, backends: { polcy: [engine] } })
  await expect(misspelt.summary()).rejects.toMatchObject({
    code: 'config_invalid',
    rawMessage: expect.stringContaining('`backends.polcy` is not known; did you mean `policy`?'),
  })
  expect(engine.calls).toBe(0)
})
