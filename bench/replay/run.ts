/**
 * What it takes to score stored rollouts again, beside the run that made them: arithmetic against the simulator at the
 * speed of the demo (`npm run demo`), then its rewards over what was stored; and whether replays come to the same.
 */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { atLeast, atMost, table, type Benchmark } from '../shared/benchmark.ts'
import { BenchChild } from '../shared/bench-child.ts'
import type { ReplayFigures, ReplayInput } from './subject.ts'

const attempts = 4

export const benchmark: Benchmark = async ({ isQuick, say }) => {
  const rollouts = isQuick ? 4_000 : 10_000
  const rounds = isQuick ? 3 : 5
  const replays = 200
  const root = await mkdtemp(join(tmpdir(), 'millrace-bench-'))
  const run = async (step: ReplayInput['step']): Promise<ReplayFigures> => {
    const input: ReplayInput = { step, root, tasks: rollouts / attempts, attempts, replays, warmUp: 1_000 }
    await using child = new BenchChild(new URL('./subject.ts', import.meta.url), input)
    return await child.answer<ReplayFigures>()
  }
  try {
    say(`running ${rollouts} rollouts at the speed of the demo`)
    const made = await run('run')
    const scored: ReplayFigures[] = []
    for (let round = 0; round < rounds; round += 1) {
      scored.push(await run('rescore'))
      say(`  round ${round + 1}: scored again in ${(scored.at(-1)?.wallMs ?? 0).toFixed(0)} ms`)
    }
    const replayed = await run('replay')
    // The best round: what else the machine does only ever adds to it, and to the run, which waits, it adds little.
    const best = scored.toSorted((one, other) => one.wallMs - other.wallMs)[0] ?? made
    const { wallMs } = best
    const speedUp = made.wallMs / wallMs
    const rows = [
      ['what', 'rollouts', 'wall s', 'CPU s', 'rollouts/s', 'peak MB'],
      ...(
        [
          ['run', made],
          ['rescore', best],
          ['replay', replayed],
        ] as const
      ).map(([what, figures]) => [
        what,
        String(figures.rollouts),
        (figures.wallMs / 1000).toFixed(2),
        (figures.cpuMs / 1000).toFixed(2),
        ((figures.rollouts / figures.wallMs) * 1000).toFixed(0),
        figures.peakMemoryMb.toFixed(0),
      ]),
    ]
    return {
      table: table(rows),
      figures: {
        'run.wallMs': made.wallMs,
        'rescore.wallMs': wallMs,
        'rescore.cpuMs': best.cpuMs,
        'rescore.speedUp': speedUp,
        'replay.wallMs': replayed.wallMs,
        'rescore.peakMemoryMb': best.peakMemoryMb,
      },
      bars: [
        atLeast('rescore: times faster than the run that made the rollouts', speedUp, 50),
        atMost('rescore: rollouts with another reward', Math.max(...scored.map(({ different }) => different)), 0),
        atMost('replay: rollouts that are not identical', replayed.different + replays - replayed.rollouts, 0),
      ],
    }
  } finally {
    await rm(root, { recursive: true, force: true })
  }
}
