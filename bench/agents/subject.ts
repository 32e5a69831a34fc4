/**
 * The measured process: an agent behind `POST /run`, as a server would have it. `direct` runs the rollout in the handler. `self`
 * does what the agents of NeMo Gym do: its handler posts to `/v1/responses` of the same process over HTTP, and that runs it.
 * Both have the same web framework, the same service and the same replies. Prints its URL.
 */
import { existsSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fastify } from 'fastify'
import { Pool } from 'undici'
import { settleHeapForRollouts } from '../../src/kit/index.ts'
import { RolloutService } from '../../src/serve/index.ts'
import { benchAgents, type BenchAgent } from './environment.ts'

export interface AgentSubjectInput {
  readonly kind: 'direct' | 'self'
  readonly agent: BenchAgent
  readonly model: string
  readonly concurrency: number
}

export interface RunReply {
  readonly outcome: string
  readonly reward: number | null
  readonly response: unknown
}

/** As many as aiohttp opens to one host in NeMo Gym. */
const selfConnections = 1_024
const backlog = 4_096
/** Where commits take no time: with 64 at once a disk has more to say than a call over HTTP. */
const memoryFolder = '/dev/shm'

const input = JSON.parse(process.argv[2] ?? '{}') as AgentSubjectInput
// As the command line does.
settleHeapForRollouts()
const root = await mkdtemp(join(existsSync(memoryFolder) ? memoryFolder : tmpdir(), 'millrace-bench-'))
const service = await RolloutService.open({
  ...benchAgents[input.agent],
  model: { name: 'mock', backends: [{ url: input.model }], price: { input: 0, output: 0 } },
  concurrency: input.concurrency,
  preflight: false,
  run: { root },
})
const app = fastify()
let self: Pool | undefined
app.post('/run', async ({ body }) => (input.kind === 'direct' ? await rollout(body) : await askSelf(body)))
app.post('/v1/responses', async ({ body }) => await rollout(body))
const url = await app.listen({ port: 0, host: '127.0.0.1', backlog })
self = new Pool(url, { connections: selfConnections, pipelining: 1 })
console.log(JSON.stringify({ url }))
process.once('SIGTERM', () => void end())

async function rollout(task: unknown): Promise<RunReply> {
  const { results } = await service.submit({ tasks: [task] })
  for await (const { record } of results) {
    if (record) return { outcome: record.outcome, reward: record.reward, response: record.messages }
  }
  throw new Error('the request ended without a result')
}

async function askSelf(task: unknown): Promise<RunReply> {
  if (!self) throw new Error('not listening yet')
  const reply = await self.request({
    path: '/v1/responses',
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(task),
  })
  if (reply.statusCode !== 200) throw new Error(await reply.body.text())
  return (await reply.body.json()) as RunReply
}

async function end(): Promise<void> {
  await self?.destroy()
  app.server.closeAllConnections()
  await app.close()
  await service.drain()
  await service.close()
  await rm(root, { recursive: true, force: true })
  process.exit(0)
}
