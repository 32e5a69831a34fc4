/**
 * Whether memory stays flat over a long run, with many short rollouts at a high concurrency, journal and all; and what a
 * rollout holds that does nothing but wait for its model.
 */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { registerResolver } from '../../src/env/index.ts'
import { evaluate } from '../../src/index.ts'
import { settleHeapForRollouts } from '../../src/kit/index.ts'
import { atMost, table, type Benchmark, type BenchmarkResult } from '../shared/benchmark.ts'
import { BenchChild } from '../shared/bench-child.ts'
import type { WaitingFigures, WaitingInput } from './waiting-subject.ts'

const concurrency = 1_000

export const benchmark: Benchmark = async (options) => {
  const waiting = await measureWaiting(options)
  const long = await measureLongRun(options)
  return {
    table: [...waiting.table, '', ...long.table],
    figures: { ...waiting.figures, ...long.figures },
    bars: [...waiting.bars, ...long.bars],
  }
}

/** Processes that differ in nothing but how many rollouts wait: what they differ by is what those hold. */
async function measureWaiting({ isQuick, say }: Parameters<Benchmark>[0]): Promise<BenchmarkResult> {
  const rows = [['rollouts that wait', 'with a connection', 'heap MB', 'resident MB', 'peak MB']]
  const measured: WaitingFigures[] = []
  for (const rollouts of isQuick ? [1_000, 5_000] : [5_000, 10_000]) {
    say(`${rollouts} rollouts wait`)
    await using backend = new BenchChild(new URL('../shared/backend.ts', import.meta.url), { 'faults.hang': 1 })
    const { url } = await backend.answer<{ url: string }>()
    const input: WaitingInput = { url, rollouts }
    await using child = new BenchChild(new URL('./waiting-subject.ts', import.meta.url), input, {
      nodeArguments: ['--expose-gc'],
    })
    const figures = await child.answer<WaitingFigures>()
    measured.push(figures)
    const { connected, heapKb, residentMb, peakMb } = figures
    rows.push([rollouts, connected, heapKb / 1024, residentMb, peakMb].map((each) => each.toFixed(0)))
  }
  const [half, all] = measured as [WaitingFigures, WaitingFigures]
  const heapKbPerRollout = (all.heapKb - half.heapKb) / (all.rollouts - half.rollouts)
  const residentKbPerRollout = ((all.residentMb - half.residentMb) * 1024) / (all.rollouts - half.rollouts)
  return {
    table: table(rows),
    figures: { waiting: all.rollouts, heapKbPerRollout, residentKbPerRollout, waitingPeakMb: all.peakMb },
    bars: [
      atMost(
        'heap and buffers per waiting rollout, its messages and its connection included, KB',
        heapKbPerRollout,
        25,
      ),
      atMost(`peak resident memory with ${all.rollouts} rollouts at once, MB`, all.peakMb, 1_000),
    ],
  }
}

async function measureLongRun({ isQuick, say }: Parameters<Benchmark>[0]): Promise<BenchmarkResult> {
  registerResolver()
  // As the command line does.
  settleHeapForRollouts()
  const rollouts = isQuick ? 20_000 : 100_000
  const root = await mkdtemp(join(tmpdir(), 'millrace-bench-'))
  /** The most seen in each tenth of the run, in MB: in all, and held by JavaScript. */
  const resident: number[] = []
  const heap: number[] = []
  const startedAt = performance.now()
  try {
    const run = evaluate({
      environment: join(import.meta.dirname, '../shared/environment.ts'),
      model: { name: 'sim', simulator: { ttftMs: 20 } },
      concurrency,
      limit: rollouts,
      run: { root, resume: 'never' },
    })
    let ended = 0
    for await (const _record of run) {
      ended += 1
      const tenth = Math.min(9, Math.floor((ended / rollouts) * 10))
      if (ended % 100 === 0) {
        const { rss, heapUsed } = process.memoryUsage()
        resident[tenth] = Math.max(resident[tenth] ?? 0, rss / 2 ** 20)
        heap[tenth] = Math.max(heap[tenth] ?? 0, heapUsed / 2 ** 20)
      }
      if (ended % (rollouts / 10) === 0) say(`  ${ended} rollouts, ${resident.at(-1)?.toFixed(0)} MB`)
    }
  } finally {
    await rm(root, { recursive: true, force: true })
  }
  const seconds = (performance.now() - startedAt) / 1000
  const peak = process.resourceUsage().maxRSS / 1024
  // A tenth of the quick run is too short to be warm; the third is not.
  const reference = isQuick ? 2 : 0
  const growth = (resident[9] ?? Number.NaN) / (resident[reference] ?? Number.NaN)
  return {
    table: table([
      ['tenth of the run', ...resident.map((_, tenth) => String(tenth + 1))],
      ['most resident, MB', ...resident.map((each) => each.toFixed(0))],
      ['most heap used, MB', ...heap.map((each) => each.toFixed(0))],
    ]),
    figures: { rollouts, peakMb: peak, firstTenthMb: resident[0] ?? 0, lastTenthMb: resident[9] ?? 0, seconds },
    bars: [
      atMost(`peak resident memory over ${rollouts} rollouts, MB`, peak, 500),
      atMost(`the peak of tenth 10 over that of tenth ${reference + 1}`, growth, isQuick ? 1.35 : 1.2),
    ],
  }
}
