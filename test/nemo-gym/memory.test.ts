/** What a server holds does not depend on how much it has done. */
import { ServerResponse } from 'node:http'
import { queryObjects, setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { calls, type Script } from 'millrace/testing'
import { defineEnvironment, z } from 'millrace'
import { Agent, request } from 'undici'
import { expect, test } from 'vitest'
import { AbortScope } from '../../src/kit/index.ts'
import { AgentRun } from '../../src/rollout/agent/agent-run.ts'
import { EnvironmentSession } from '../../src/rollout/index.ts'
import { ActiveRequest, ResultReader } from '../../src/serve/requests/active-request.ts'
import { activeResources, leftSince } from '../support/kit/active-resources.ts'
import { runningThreads, threadsSince } from '../support/kit/running-threads.ts'
import { TestServer } from '../support/serve/test-server.ts'

setFlagsFromString('--expose-gc')
const collectGarbage: () => void = runInNewContext('gc')

const log = { setUp: 0, tornDown: 0 }

const environment = defineEnvironment({
  name: 'counter',
  task: z.object({ wanted: z.number() }),
  tasks: () => [],
  setup: () => {
    log.setUp += 1
    return { count: 0, ballast: new Uint8Array(8_192) }
  },
  teardown: () => {
    log.tornDown += 1
  },
  prompt: () => 'Count.',
  tools: {
    add: {
      parameters: z.object({ by: z.number() }),
      resume: 'rerun',
      run: ({ by }, { state }) => (state.count += by),
    },
    fail: {
      parameters: z.object({}),
      resume: 'rerun',
      run: () => {
        throw new Error('broken')
      },
    },
  },
  reward: ({ state, task }) => state.count === task.wanted,
})

/** Calls a tool twice, of which one fails, and answers. */
const counts: Script = ({ messages }) => {
  if (messages.some(({ role }) => role === 'tool')) return 'Done.'
  return calls({ add: { by: 2 } }, { fail: {} })
}

const params = { responses_create_params: { input: [] } }
const message = {
  type: 'message',
  role: 'assistant',
  content: [{ type: 'output_text', text: 'Done.', annotations: [] }],
}

class Client {
  readonly #url: string
  readonly #dispatcher: Agent
  #cookie: string | undefined

  constructor(url: string, dispatcher: Agent) {
    this.#url = url
    this.#dispatcher = dispatcher
  }

  async post(path: string, body: object): Promise<{ readonly status: number; readonly text: string }> {
    const {
      statusCode,
      headers,
      body: reply,
    } = await request(this.#url + path, {
      dispatcher: this.#dispatcher,
      method: 'POST',
      headers: { 'content-type': 'application/json', ...(this.#cookie !== undefined && { cookie: this.#cookie }) },
      body: JSON.stringify(body),
    })
    const cookie = [headers['set-cookie'] ?? []].flat()[0]
    this.#cookie = cookie?.split(';', 1)[0]
    return { status: statusCode, text: await reply.text() }
  }
}

/** All that agents and collectors do, so many times side by side. */
async function work(url: string, dispatcher: Agent, { from, count }: { from: number; count: number }): Promise<void> {
  const one = async (index: number): Promise<void> => {
    const client = new Client(url, dispatcher)
    const place = { _ng_task_index: index, _ng_rollout_index: 0 }
    const run = await client.post('/run', { ...params, wanted: 2, ...place })
    expect(run.text).toContain('"reward":1.0')
    const failed = await client.post('/run', { ...params, wanted: 'none' })
    expect(failed.text).toContain('task_invalid')
    const row = { ...params, wanted: 3 }
    expect((await client.post('/seed_session', row)).status).toBe(200)
    expect((await client.post('/add', { by: 3 })).status).toBe(200)
    expect((await client.post('/fail', {})).status).toBe(500)
    const verified = await client.post('/verify', { ...row, response: { output: [message] } })
    expect(verified.text).toContain('"reward":1.0')
  }
  for (let done = 0; done < count; done += 25) {
    await Promise.all(Array.from({ length: 25 }, (_, index) => one(from + done + index)))
  }
}

/** How many of each kind are in use: those of a row or a session go with it. */
function aliveObjects(): Record<string, number> {
  const kinds = { EnvironmentSession, AgentRun, ActiveRequest, ResultReader, AbortScope, ServerResponse }
  return Object.fromEntries(
    Object.entries(kinds).map(([name, kind]) => [name, queryObjects(kind, { format: 'count' })]),
  )
}

async function heldBytes(): Promise<number> {
  let least = Infinity
  // What a promise or a finaliser still holds is free some turns later.
  for (let look = 0; look < 4; look += 1) {
    await nextTurn()
    collectGarbage()
    const { heapUsed, arrayBuffers } = process.memoryUsage()
    least = Math.min(least, heapUsed + arrayBuffers)
  }
  return least
}

test('thousands of rollouts and sessions leave nothing behind', async () => {
  // A verified session stays until its place is needed, which is at once here.
  const maxSessions = 25
  const bounds = { maxRememberedRequests: 50, abandonGraceMs: 50, maxSessions }
  await using server = await TestServer.start(counts, { environment, nemoGym: { failures: 'class' }, bounds })
  const dispatcher = new Agent({ connections: 25 })
  await using _closed = { [Symbol.asyncDispose]: async () => await dispatcher.close() }
  const round = 150
  const held: number[] = []
  let before = { resources: activeResources(), threads: runningThreads(), objects: aliveObjects() }
  for (let index = 0; index < 8; index += 1) {
    await work(server.httpServer.url, dispatcher, { from: index * round, count: round })
    server.backend.requests.length = 0
    held.push(await heldBytes())
    // The first rounds make what all later ones use again.
    if (index === 1) before = { resources: activeResources(), threads: runningThreads(), objects: aliveObjects() }
    expect(server.service.sessions.size).toBe(maxSessions)
    expect(server.service.status()).toMatchObject({ running: 0, queued: 0 })
  }
  const more = (): string[] =>
    Object.entries(aliveObjects()).flatMap(([kind, count]) => (count > (before.objects[kind] ?? 0) ? [kind] : []))
  await expect.poll(more).toEqual([])
  expect(threadsSince(before.threads)).toBe(0)
  expect(await leftSince(before.resources)).toEqual([])
  expect(log.tornDown).toBe(log.setUp - maxSessions)
  const [, from = 0] = held
  const growth = ((held.at(-1) ?? 0) - from) / ((held.length - 2) * round)
  // A leaked state alone would be 8 kB. Compiled code and the like make some 200 bytes of the first thousands.
  expect(growth).toBeLessThan(700)
})
