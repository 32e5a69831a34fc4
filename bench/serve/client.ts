/**
 * The load: so many clients that each send one request after another, over connections of their own. Prints a line when the
 * first replies have come and it begins to measure, and its figures when it has measured enough; all clients are busy until then.
 */
import { Pool } from 'undici'

export interface ServeClientInput {
  readonly origin: string
  readonly path: string
  readonly concurrency: number
  /** Replies before the first that counts: at least as many as it takes until they come evenly. */
  readonly warmUp: number
  /** Replies that count. */
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
let begun = { at: performance.now(), cpu: process.cpuUsage() }
let failed = 0
let sent = 0
let replies = 0
const lastReply = input.warmUp + input.requests
await Promise.all(
  Array.from({ length: input.concurrency }, async (_, client) => {
    const pool = pools[client % pools.length] as Pool
    while (replies < lastReply) {
      const body = input.bodies[sent % input.bodies.length] ?? ''
      sent += 1
      const sentAt = performance.now()
      const reply = await pool.request({
        path: input.path,
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body,
      })
      const text = await reply.body.text()
      if (reply.statusCode !== 200 || !/"outcome":"completed"|"finish_reason":"stop"/.test(text)) failed += 1
      onReply(performance.now() - sentAt)
    }
  }),
)
await Promise.all(pools.map((pool) => pool.close()))

function onReply(latencyMs: number): void {
  replies += 1
  if (replies > input.warmUp) latencies.push(latencyMs)
  if (replies === input.warmUp) {
    begun = { at: performance.now(), cpu: process.cpuUsage() }
    console.log('{}')
  } else if (replies === lastReply) console.log(JSON.stringify(figures()))
}

function figures(): ClientFigures {
  const wallMs = performance.now() - begun.at
  const { user, system } = process.cpuUsage(begun.cpu)
  const cpuMs = (user + system) / 1000
  latencies.sort((one, other) => one - other)
  const at = (quantile: number): number => latencies[Math.floor((latencies.length - 1) * quantile)] ?? Number.NaN
  return { wallMs, cpuMs, failed, p50Ms: at(0.5), p99Ms: at(0.99) }
}
