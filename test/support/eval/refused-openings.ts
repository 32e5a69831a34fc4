/**
 * Opens gateways, evaluations and servers of rollouts that are each refused at another step. Prints one line of JSON: for each
 * its error, and what it left behind when it was refused. The process ends by itself if nothing of them is left.
 */
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { z } from 'zod'
import { defineEnvironment, registerResolver } from '../../../src/env/index.ts'
import { evaluate } from '../../../src/eval/index.ts'
import { Gateway, type GatewayOptions } from '../../../src/gateway/index.ts'
import { decodePool, resolveModelConfig, type ModelConfigInput } from '../../../src/inference/index.ts'
import { GatewayServer, RolloutServer, RolloutService, type GatewayServerOptions } from '../../../src/serve/index.ts'
import { RunStore } from '../../../src/store/index.ts'

const [, , root = ''] = process.argv
registerResolver()

/** A backend that refuses every key; its port is also the one that is taken. */
const backend = createServer((_request, response) => response.writeHead(401).end()).listen(0, '127.0.0.1')
await once(backend, 'listening')
const { port: takenPort } = backend.address() as AddressInfo

const url = `http://127.0.0.1:${takenPort}/v1`
const good: ModelConfigInput = { name: 'good', backends: [{ url }] }
const badFile: ModelConfigInput = {
  name: 'bad',
  backends: [{ url }, { url: 'https://b.invalid/v1', caFile: 'none.pem' }],
}
const badSimulator: ModelConfigInput = { name: 'bad', simulator: { nonsense: 1 } }
const adminKeys = [{ tenant: 'tests', key: 'an admin key for tests' }]

const gateway = (models: readonly ModelConfigInput[], more: Partial<GatewayServerOptions> = {}) =>
  GatewayServer.open({
    models: models.map((model) => resolveModelConfig({ model, env: {} })),
    keys: adminKeys,
    port: 0,
    run: { root, name: 'gateway' },
    env: {},
    ...more,
  })

/** Its sessions cannot be read: the database is closed. */
const create = { name: 'alone', configDigest: 'alone', config: {}, provenance: {} }
const store = await RunStore.open({ folder: join(root, 'alone'), create })
store.reader[Symbol.dispose]()

/** A gateway without its server. Nothing else is closed when it is refused, so that nothing is closed in the meantime. */
const gatewayAlone = (more: Partial<GatewayOptions> = {}) => {
  const models = [resolveModelConfig({ model: good, env: {} })]
  return Gateway.open({ store, env: {}, adminKeys, models, ...more })
}

const environment = defineEnvironment({
  name: 'refused',
  options: z.object({ tasks: z.string().default('some'), server: z.boolean().default(false) }),
  task: z.object({}),
  tasks: ({ tasks }) => {
    if (tasks === 'none') throw new Error('no tasks here')
    return [{}]
  },
  mcpServers: ({ server }) => (server ? { there: { command: 'true' } } : {}),
  prompt: () => 'go',
  reward: () => 1,
})
const offloaded = join(import.meta.dirname, '../../fixtures/offloaded.ts')
const run = { root }
const asked = { environment, model: good, run, preflight: false }
const judged = { judge: 'judge', models: { judge: badFile } }

const evaluation = async (options: Parameters<typeof evaluate>[0]) => void (await evaluate(options).started)
const service = (options: Parameters<typeof RolloutService.open>[0]) => RolloutService.open(options)

const openings: Readonly<Record<string, () => Promise<AsyncDisposable | void>>> = {
  'gateway: the file of an authority': () => gateway([good, badFile]),
  'gateway: a simulator': () => gateway([good, badSimulator]),
  'gateway: an alias': () => gateway([good], { aliases: { other: 'missing' } }),
  'gateway: a key of two tenants': () =>
    gateway([good], { keys: [...adminKeys, ...adminKeys.map(({ key }) => ({ tenant: 'two', key }))] }),
  'gateway: the port': () => gateway([good], { port: takenPort }),
  'gateway alone: a model': () =>
    gatewayAlone({ models: [good, badFile].map((model) => resolveModelConfig({ model, env: {} })) }),
  'gateway alone: no key': () => gatewayAlone({ adminKeys: [] }),
  'gateway alone: its sessions': () => gatewayAlone(),
  'eval: a model': () => evaluation({ ...asked, ...judged }),
  'eval: a model beside a tool server': () => evaluation({ ...asked, ...judged, options: { server: true } }),
  'eval: a model beside an offloaded reward': () => evaluation({ ...asked, ...judged, environment: offloaded }),
  'eval: the preflight': () => evaluation({ ...asked, preflight: true }),
  'eval: the tasks': () => evaluation({ ...asked, options: { tasks: 'none' } }),
  'eval: a model of a worker': () => evaluation({ ...asked, ...judged, environment: offloaded, workers: 1 }),
  'serve: a model': () => service({ ...asked, ...judged }),
  'serve: the preflight': () => service({ ...asked, preflight: true }),
  'serve: the port': async () => {
    await using opened = await service(asked)
    return await RolloutServer.open({ service: opened, port: takenPort })
  },
}

const told: Record<string, readonly [code: string, threads: number]> = {}
for (const [step, open] of Object.entries(openings)) {
  let code = 'opened'
  try {
    await using _opened = (await open()) ?? undefined
  } catch (error) {
    code = String((error as { code?: unknown }).code)
  }
  // A thread starts only if a backend is still open.
  decodePool.warm()
  told[step] = [code, decodePool.status().threads]
}
backend.close()
await store.close()
process.stdout.write(JSON.stringify(told))
