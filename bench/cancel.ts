/** How long it takes until the backend has seen every connection of 1,000 stopped rollouts go away. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { evaluate } from '../src/index.ts'
import { registerResolver } from '../src/env/index.ts'
import { request } from 'undici'
import { atMost, median, table, type Benchmark } from './_benchmark.ts'
import { BenchChild } from './_child.ts'

const count = 1_000

export const benchmark: Benchmark = async ({ isQuick, say }) => {
  registerResolver()
  const rounds = isQuick ? 3 : 7
  const root = await mkdtemp(join(tmpdir(), 'millrace-bench-'))
  await using backend = new BenchChild('_backend.ts', { 'faults.hang': 1 })
  const { url } = await backend.answer<{ url: string }>()
  const times: number[] = []
  try {
    for (let round = 0; round < rounds; round += 1) {
      const abortedBefore = (await stats(url)).aborted
      const stop = new AbortController()
      const run = evaluate({
        environment: join(import.meta.dirname, '_environment.ts'),
        model: { name: 'hung', backends: [{ url: url }], price: { input: 0, output: 0 } },
        concurrency: count,
        preflight: false,
        run: { root, resume: 'never' },
        signal: stop.signal,
      })
      const summary = run.summary()
      while ((await stats(url)).inFlight < count) await pause(5)
      const startedAt = performance.now()
      stop.abort()
      while ((await stats(url)).aborted < abortedBefore + count) await pause(1)
      times.push(performance.now() - startedAt)
      await summary
      say(`  round ${round + 1}: ${times.at(-1)?.toFixed(0)} ms`)
    }
  } finally {
    await rm(root, { recursive: true, force: true })
  }
  const worst = Math.max(...times)
  return {
    table: table([
      ['rollouts stopped', 'median ms', 'worst ms'],
      [String(count), median(times).toFixed(0), worst.toFixed(0)],
    ]),
    figures: { medianMs: median(times), worstMs: worst },
    bars: [atMost('until all connections were aborted upstream, ms, worst round', worst, 500)],
  }
}

async function stats(url: string): Promise<{ inFlight: number; aborted: number }> {
  const { body } = await request(new URL('/sim/stats', url))
  return (await body.json()) as { inFlight: number; aborted: number }
}
