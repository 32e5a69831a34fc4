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

/** Sends requests one after the other over one connection. */
async function ask(url: string, requests: readonly (readonly [path: string, body: object])[]): Promise<string[]> {
  const dispatcher = new Dispatcher({ connections: 1 })
  await using _closed = { [Symbol.asyncDispose]: () => dispatcher.close() }
  const replies: string[] = []
  for (const [path, asked] of requests) {
    const body = JSON.stringify(asked)
    const headers = { 'content-type': 'application/json' }
    const reply = await request(url + path, { dispatcher, method: 'POST', headers, body })
    replies.push(await reply.body.text())
  }
  return replies
}

const runOf = (row: object) => ['/run', { responses_create_params: { input: [] }, ...row }] as const
const responseTo = (task: object) => ['/v1/responses', { input: [], task, stream: true }] as const

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
  const requested = [...rows.map(runOf), ...rows.map(responseTo)]
  const replies = await ask(server.url, requested)
  const records = requested.map((_row, index) => server.service.record(`${index}-0`))
  expect(replies.slice(0, rows.length).map((reply) => JSON.parse(reply) as unknown)).toMatchObject(
    rows.map(({ agent }) => ({ agent, outcome: 'completed' })),
  )
  for (const reply of replies.slice(rows.length)) expect(reply).toContain('event: response.completed')
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
  // Those of the client are all.
  expect({ connections, requests, sentHere, listening }).toEqual({
    connections: 1,
    requests: requested.length,
    sentHere: requested.length,
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
  await ask(server.url, [runOf({ url: server.url })])
  const { connections, requests, sentHere } = watch
  expect({ connections, requests, sentHere }).toEqual({ connections: 2, requests: 2, sentHere: 2 })
})
