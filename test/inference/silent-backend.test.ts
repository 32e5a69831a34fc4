import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { defineEnvironment, evaluate, SimulatorServer, z, type RolloutRecord } from 'millrace'
import { calls, runScripted, temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import { HurriedClock, longMs } from '../support/fast-clock.ts'

const tasks = (count: number) =>
  defineEnvironment({
    name: 'silence',
    task: z.object({ index: z.number() }),
    tasks: () => Array.from({ length: count }, (_, index) => ({ index })),
    prompt: ({ task }) => `task ${task.index}`,
    reward: ({ truncated }) => (truncated ? 0.5 : 1),
  })

const never = new Promise<never>(() => {})

async function serve(answer: (body: string, response: ServerResponse) => void) {
  const server = createServer((request: IncomingMessage, response) => {
    void text(request).then((body) => answer(body, response))
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  return {
    url: `http://127.0.0.1:${port}/v1`,
    host: `127.0.0.1:${port}`,
    async [Symbol.asyncDispose](): Promise<void> {
      server.closeAllConnections()
      server.close()
      await once(server, 'close')
    },
  }
}

interface Extent {
  readonly timeoutMs: number
  readonly wallTimeoutMs?: number
  readonly count?: number
  readonly stream?: boolean
  readonly retries?: number
  readonly onRecord?: (record: RolloutRecord) => void
}

async function run(url: string, { count = 1, stream = false, retries = 0, onRecord, ...limits }: Extent) {
  await using runs = await temporaryRuns()
  const evaluation = evaluate({
    environment: tasks(count),
    // What goes on for too long is the rollout, not a pause within it.
    model: { name: 'm', stream, idleTimeoutMs: 10 * longMs, backends: [{ url }] },
    preflight: false,
    retries,
    limits,
    run: { root: runs.root },
  })
  const records: RolloutRecord[] = []
  for await (const record of evaluation) {
    records.push(record)
    onRecord?.(record)
  }
  return records.toSorted((one, other) => one.task.index - other.task.index)
}

const whole = JSON.stringify({
  choices: [{ message: { role: 'assistant', content: 'done' }, finish_reason: 'stop' }],
  usage: { prompt_tokens: 1, completion_tokens: 1 },
})

test('a timeout at a hanging backend is an infrastructure failure: no score, and another attempt', async () => {
  using clock = new HurriedClock()
  await using server = await serve(() => clock.pass(longMs))
  const [record] = await run(server.url, { timeoutMs: longMs, retries: 1 })
  expect(record).toMatchObject({ outcome: 'infra_timeout', reward: null, truncated: false, attempt: 2 })
  expect(record?.error?.message).toContain(`after ${server.host} had sent nothing for`)
  expect(record?.error?.data).toEqual({ limit: 'silence' })
  expect(record?.timing.modelMs).toBeGreaterThan(0)
})

/** Comments, which mean nothing. More than a socket takes: once they are written, what came before them was read. */
const chatter = `:${'.'.repeat(62)}\n`.repeat(262_144)

test('a timeout while the model is streaming is scored as truncated', async () => {
  using clock = new HurriedClock()
  await using server = await serve((_body, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    response.write(`data: ${JSON.stringify({ choices: [{ delta: { role: 'assistant', content: 'Let me' } }] })}\n\n`)
    response.write(chatter, () => clock.pass(longMs))
  })
  const [record] = await run(server.url, { timeoutMs: longMs, stream: true })
  const cutOffIn = `a model call to ${server.host}`
  expect(record).toMatchObject({ outcome: 'agent_timeout', truncated: true, reward: 0.5, cutOffIn })
  const [late] = await run(server.url, { timeoutMs: 2 * longMs, wallTimeoutMs: longMs, stream: true })
  expect(late).toMatchObject({ outcome: 'infra_timeout' })
  expect(late?.error?.message).toBe(`the wall-clock limit is reached, in ${cutOffIn}`)
  expect(late).not.toHaveProperty('cutOffIn')
})

test('a timeout of a slow reply is scored as truncated while the server answers other requests', async () => {
  using clock = new HurriedClock()
  const slow = Promise.withResolvers<void>()
  await using server = await serve((body, response) => {
    if (body.includes('task 0')) slow.resolve()
    else void slow.promise.then(() => response.setHeader('content-type', 'application/json').end(whole))
  })
  const [first, second] = await run(server.url, {
    timeoutMs: longMs,
    count: 2,
    onRecord: ({ task }) => void (task.index === 1 && clock.pass(longMs)),
  })
  expect(first).toMatchObject({ outcome: 'agent_timeout', reward: 0.5 })
  expect(second).toMatchObject({ outcome: 'completed', reward: 1 })
})

test('a timeout in a child at a hanging backend is an infrastructure failure of its parent', async () => {
  using clock = new HurriedClock()
  const { records } = await runScripted({
    environment: {
      ...tasks(1),
      tools: {
        delegate: {
          parameters: z.object({}),
          run: async (_arguments, { child }) => {
            // The backend's last answer lies before the child's request, on this clock too.
            clock.pass(1)
            return (await child({ prompt: 'hang' })).answer
          },
        },
      },
    },
    retries: 0,
    limits: { timeoutMs: longMs },
    script: async ({ messages }) => {
      if (messages[0]?.content !== 'hang') return calls({ delegate: {} })
      await nextTurn()
      clock.pass(longMs)
      return never
    },
  })
  expect(records).toMatchObject([{ outcome: 'infra_timeout', reward: null }])
})

test('a timeout while requests are parked names the cause of the wait', async () => {
  await using runs = await temporaryRuns()
  const evaluation = evaluate({
    environment: tasks(1),
    model: { name: 'm', simulator: { overload: { afterMs: 0, forMs: 600_000 } } },
    preflight: false,
    retries: 0,
    limits: { wallTimeoutMs: 400, tailMs: 100 },
    run: { root: runs.root },
  })
  const [record] = await Array.fromAsync(evaluation)
  expect(record).toMatchObject({ outcome: 'infra_timeout', reward: null })
  expect(record?.error?.message).toMatch(
    /the wall-clock limit is reached, while it waited for the model because a backend had failed: .*overload/,
  )
})

test.each([undefined, 1])(
  'a notice reports an unreachable backend if another backend of the model answers (workers: %s)',
  async (workers) => {
    await using runs = await temporaryRuns()
    await using server = await SimulatorServer.start()
    const model = { name: 'm', backends: [{ url: server.url }, { url: 'http://127.0.0.1:9/v1' }] }
    const evaluation = evaluate({
      environment: 'arithmetic',
      model,
      limit: 1,
      run: { root: runs.root },
      ...(workers !== undefined && { workers }),
    })
    const { notices } = await evaluation.started
    expect(notices).toEqual([
      expect.stringMatching(
        /^a backend of m did not answer, others did: http:\/\/127\.0\.0\.1:9\/v1.* cannot be reached/,
      ),
    ])
    expect(await evaluation.summary()).toMatchObject({ end: 'complete' })
  },
)
