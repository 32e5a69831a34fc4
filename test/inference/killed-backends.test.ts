import { setTimeout as pause } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { plainRequest } from '../support/inference/plain-request.ts'
import { HttpBackend, Model, modelConfigSchema, type ModelReply } from '../../src/inference/index.ts'
import { SimulatorServer } from '../../src/simulator/index.ts'

const size = 64
const killed = 8
const sessions = 640

test('killing 8 of 64 servers under load moves only their sessions and loses none; restarted, they take load again', async () => {
  await using ends = new AsyncDisposableStack()
  const servers: SimulatorServer[] = []
  const start = async (port = 0): Promise<SimulatorServer> =>
    ends.use(await SimulatorServer.start({ port, ttftMs: 300, spread: 0 }))
  for (let index = 0; index < size; index += 1) servers.push(await start())
  const backends = servers.map(({ url }) => ({ url }))
  const config = modelConfigSchema.parse({ name: 'sim', backends, maxConcurrency: sessions })
  const opened = config.backends.map((each) => ends.use(new HttpBackend(config, each, {})))
  const model = ends.use(new Model(config, opened))
  const { signal } = new AbortController()
  const ask = (sessionId: string): Promise<ModelReply> => model.call({ ...plainRequest, sessionId }, { signal })
  const turn = (): Promise<ModelReply[]> => Promise.all(Array.from({ length: sessions }, (_, id) => ask(`s${id}`)))

  const before = (await turn()).map(({ backend }) => backend)
  const under = turn()
  await pause(150)
  const gone = servers.slice(0, killed)
  const ports = gone.map(({ port }) => port)
  const names = new Set(opened.slice(0, killed).map(({ name }) => name))
  await Promise.all(gone.map((server) => server.close()))
  for (const replies of [await under, await turn()]) {
    for (const [id, reply] of replies.entries()) {
      const home = before[id] ?? ''
      expect(reply.status).toBe('complete')
      if (names.has(home)) expect(names.has(reply.backend)).toBe(false)
      else expect(reply.backend).toBe(home)
    }
  }
  for (const port of ports) await start(port)
  const startedAt = performance.now()
  const taken = new Set<string>()
  for (let round = 0; taken.size < killed && round < 200; round += 1) {
    const replies = await Promise.all(Array.from({ length: size }, (_, id) => ask(`new-${round}-${id}`)))
    for (const { backend } of replies) if (names.has(backend)) taken.add(backend)
  }
  expect(taken.size).toBe(killed)
  expect(performance.now() - startedAt).toBeLessThan(15_000)
})
