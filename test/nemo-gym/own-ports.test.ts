/** A rollout is no request to the server that runs it: agents, their children and their tools work in the process. */
import { defineEnvironment, type EvaluateOptions, z } from 'millrace'
import { temporaryRuns } from 'millrace/testing'
import { Agent as Dispatcher, request } from 'undici'
import { expect, test } from 'vitest'
import { agentNames } from '../../src/agents/index.ts'
import { RolloutServer, RolloutService } from '../../src/serve/index.ts'
import { SimulatorServer } from '../../src/simulator/index.ts'
import { agents } from '../fixtures/every-agent.ts'
import { fixture } from '../support/cli/millrace-process.ts'
import { PortWatch } from '../support/nemo-gym/port-watch.ts'

type Started = AsyncDisposable & { readonly url: string; readonly service: RolloutService }

async function startServer(options: Pick<EvaluateOptions, 'environment' | 'model' | 'workers'>): Promise<Started> {
  await using ends = new AsyncDisposableStack()
  const { root } = ends.use(await temporaryRuns())
  const service = ends.use(await RolloutService.open({ ...options, preflight: false, run: { root } }))
  const { url } = ends.use(await RolloutServer.open({ service, port: 0, nemoGym: { failures: 'class' } }))
  const all = ends.move()
  return { url, service, [Symbol.asyncDispose]: () => all.disposeAsync() }
}

/** Sends rows one after the other over one connection. */
async function runRows(url: string, rows: readonly object[]): Promise<unknown[]> {
  const dispatcher = new Dispatcher({ connections: 1 })
  await using _closed = { [Symbol.asyncDispose]: () => dispatcher.close() }
  const replies: unknown[] = []
  for (const row of rows) {
    const body = JSON.stringify({ responses_create_params: { input: [] }, ...row })
    const headers = { 'content-type': 'application/json' }
    const reply = await request(`${url}/run`, { dispatcher, method: 'POST', headers, body })
    replies.push(await reply.body.json())
  }
  return replies
}

const environment = fixture('every-agent.ts')
const rows = Object.keys(agents).map((agent) => ({ agent }))

test('every built-in agent is watched, except the one whose program asks an endpoint', () => {
  expect(Object.keys(agents).toSorted()).toEqual(agentNames.filter((name) => name !== 'external').toSorted())
})

test.for([
  ['on this thread, with the simulator in the process', {}, false],
  ['on this thread, with a simulator over HTTP', {}, true],
  ['on a worker thread, with the simulator in the process', { workers: 1 }, false],
  ['on a worker thread, with a simulator over HTTP', { workers: 1 }, true],
] as const)('rollouts %s ask nothing of the server that runs them', async ([, options, isRemote]) => {
  await using simulator = isRemote ? await SimulatorServer.start() : undefined
  const model = simulator ? { name: 'sim', backends: [{ url: simulator.url }] } : 'sim'
  await using server = await startServer({ environment, model, ...options })
  using watch = new PortWatch(server.url)
  using models = new PortWatch(simulator?.url ?? 'http://127.0.0.1:1')
  const replies = await runRows(server.url, rows)
  const records = rows.map((_row, index) => server.service.record(`${index}-0`))
  expect(replies).toMatchObject(rows.map(({ agent }) => ({ agent, outcome: 'completed' })))
  const calls = records.reduce((sum, record) => sum + (record?.usage.calls ?? 0), 0)
  const children = rows.map(({ agent }, index) => [agent, records[index]?.children])
  expect(Object.fromEntries(children)).toMatchObject({
    plan: 1,
    userSimulator: 2,
    reflect: 1,
    parallel: 2,
    orchestrate: 2,
  })
  const { connections, requests, sentHere, listening } = watch
  // The rows are all: the connection and the requests of the client.
  expect({ connections, requests, sentHere, listening }).toEqual({
    connections: 1,
    requests: rows.length,
    sentHere: rows.length,
    listening: 0,
  })
  // The watch sees what agents do ask.
  expect(models.requests).toBe(isRemote ? calls : 0)
  expect(watch.sentElsewhere).toBe(isRemote && !('workers' in options) ? calls : 0)
})

test('the watch sees an agent that asks its own server', async () => {
  const asking = defineEnvironment({
    name: 'asking',
    task: z.object({ url: z.string() }),
    tasks: () => [],
    prompt: () => 'What is 1 + 1?',
    agent: async ({ task, turn }) => {
      await fetch(`${(task as { readonly url: string }).url}/health`)
      await turn()
    },
    reward: () => 1,
  })
  await using server = await startServer({ environment: asking, model: 'sim' })
  using watch = new PortWatch(server.url)
  await runRows(server.url, [{ url: server.url }])
  const { connections, requests, sentHere } = watch
  expect({ connections, requests, sentHere }).toEqual({ connections: 2, requests: 2, sentHere: 2 })
})
