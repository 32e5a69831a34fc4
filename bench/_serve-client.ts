/** The load: so many clients that each send one request after another, over connections of their own. Prints its figures. */
import { Pool } from 'undici'

export interface ServeClientInput {
  readonly origin: string
  readonly path: string
  readonly concurrency: number
  readonly requests: number
  /** The bodies to send, in turn. */
  readonly bodies: readonly string[]
}

export interface ClientFigures {
  readonly wallMs: number
  readonly cpuMs: number
  readonly failed: number
  readonly p50Ms: number
  readonly p99Ms: number
}

const poolSize = 256
const input = JSON.parse(process.argv[2] ?? '{}') as ServeClientInput
// In pools of 256: undici walks a pool's list for a free connection, and one of 4,096 costs more than the request.
const pools = Array.from({ length: Math.ceil(input.concurrency / poolSize) }, () => {
  return new Pool(input.origin, { connections: Math.min(poolSize, input.concurrency), pipelining: 1 })
})
const latencies: number[] = []
let failed = 0
let next = 0
const startedAt = performance.now()
await Promise.all(
  Array.from({ length: input.concurrency }, async (_, client) => {
    const pool = pools[client % pools.length] as Pool
    while (next < input.requests) {
      const body = input.bodies[next % input.bodies.length] ?? ''
      next += 1
      const sentAt = performance.now()
      const reply = await pool.request({
        path: input.path,
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body,
      })
      const text = await reply.body.text()
      latencies.push(performance.now() - sentAt)
      if (reply.statusCode !== 200 || !/"outcome":"completed"|"finish_reason":"stop"/.test(text)) failed += 1
    }
  }),
)
const wallMs = performance.now() - startedAt
const { user, system } = process.cpuUsage()
const cpuMs = (user + system) / 1000
latencies.sort((one, other) => one - other)
const at = (quantile: number): number => latencies[Math.floor((latencies.length - 1) * quantile)] ?? Number.NaN
console.log(JSON.stringify({ wallMs, cpuMs, failed, p50Ms: at(0.5), p99Ms: at(0.99) } satisfies ClientFigures))
await Promise.all(pools.map((pool) => pool.close()))
