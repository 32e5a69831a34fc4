/**
 * How long it takes until the backend has seen every connection of 1,000 stopped rollouts go away, against a bare undici
 * pool with as many requests that are aborted together.
 */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { Pool, request } from 'undici'
import { registerResolver } from '../../src/env/index.ts'
import { evaluate } from '../../src/index.ts'
import { atMost, median, table, type Benchmark } from '../shared/benchmark.ts'
import { BenchChild } from '../shared/bench-child.ts'

const count = 1_000

/** Sends its requests at once; what it returns settles when all of them are over. */
type Client = (signal: AbortSignal) => Promise<unknown>

export const benchmark: Benchmark = async ({ isQuick, say }) => {
  registerResolver()
  const rounds = isQuick ? 3 : 7
  const root = await mkdtemp(join(tmpdir(), 'millrace-bench-'))
  await using backend = new BenchChild(new URL('../shared/backend.ts', import.meta.url), { 'faults.hang': 1 })
  const { url } = await backend.answer<{ url: string }>()
  const pool = new Pool(new URL(url).origin, { connections: count, pipelining: 1 })
  const clients: Record<'floor' | 'millrace', Client> = {
    floor: (signal) => askInPool(pool, signal),
    millrace: (signal) => runRollouts(url, root, signal),
  }
  const times = { floor: [] as number[], millrace: [] as number[] }
  try {
    for (let round = 0; round < rounds; round += 1) {
      for (const name of ['floor', 'millrace'] as const) times[name].push(await timeToStop(url, clients[name]))
      say(
        `  round ${round + 1}: floor ${times.floor.at(-1)?.toFixed(0)} ms, millrace ${times.millrace.at(-1)?.toFixed(0)} ms`,
      )
    }
  } finally {
    await pool.destroy()
    await rm(root, { recursive: true, force: true })
  }
  const rows = Object.entries(times).map(([name, each]) => {
    return [name, String(count), median(each).toFixed(0), Math.max(...each).toFixed(0)]
  })
  const overFloor = median(times.millrace) / median(times.floor)
  return {
    table: table([['client', 'stopped', 'median ms', 'worst ms'], ...rows]),
    figures: { medianMs: median(times.millrace), worstMs: Math.max(...times.millrace), overFloor },
    bars: [atMost('until all connections were aborted upstream, over the floor’s', overFloor, 4)],
  }
}

async function timeToStop(url: string, client: Client): Promise<number> {
  const abortedBefore = (await stats(url)).aborted
  const stop = new AbortController()
  const over = client(stop.signal)
  while ((await stats(url)).inFlight < count) await pause(5)
  const startedAt = performance.now()
  stop.abort()
  while ((await stats(url)).aborted < abortedBefore + count) await pause(1)
  const ms = performance.now() - startedAt
  await over
  return ms
}

function askInPool(pool: Pool, signal: AbortSignal): Promise<unknown> {
  const body = JSON.stringify({ model: 'hung', messages: [{ role: 'user', content: 'What is 1 + 1?' }] })
  const headers = { 'content-type': 'application/json' }
  const ask = () => pool.request({ path: '/v1/chat/completions', method: 'POST', headers, body, signal })
  return Promise.allSettled(Array.from({ length: count }, ask))
}

function runRollouts(url: string, root: string, signal: AbortSignal): Promise<unknown> {
  return evaluate({
    environment: join(import.meta.dirname, '../shared/environment.ts'),
    model: { name: 'hung', backends: [{ url }], price: { input: 0, output: 0 } },
    concurrency: count,
    preflight: false,
    run: { root, resume: 'never' },
    signal,
  }).summary()
}

async function stats(url: string): Promise<{ inFlight: number; aborted: number }> {
  const { body } = await request(new URL('/sim/stats', url))
  return (await body.json()) as { inFlight: number; aborted: number }
}
