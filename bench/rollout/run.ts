/**
 * What a rollout costs beyond its HTTP calls: two turns, one tool, prompts of half a kilobyte, the backend in another
 * process. The floor sends the same bytes through a bare undici pool, in the same run, turn about with Millrace.
 */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { atMost, median, table, type Bar, type Benchmark } from '../shared/benchmark.ts'
import { BenchChild } from '../shared/bench-child.ts'
import type { SubjectFigures, SubjectInput } from './subject.ts'

interface Case {
  readonly name: string
  readonly concurrency: number
  readonly rollouts: number
  /** Before them: until V8 has compiled what they need. One at a time it takes longer to have seen enough. */
  readonly warmUp: number
  readonly rounds: number
  readonly backend: Readonly<Record<string, number>>
}

/** One at a time V8 goes on compiling for some 12,000 rollouts; what that takes counts, but should not be half of the figure. */
const cpuCases: readonly Case[] = [
  { name: 'c1', concurrency: 1, rollouts: 30_000, warmUp: 2_000, rounds: 5, backend: {} },
  { name: 'c256', concurrency: 256, rollouts: 12_000, warmUp: 500, rounds: 5, backend: {} },
  { name: 'c2048', concurrency: 2_048, rollouts: 12_000, warmUp: 500, rounds: 5, backend: {} },
]
/** A backend that takes about a second per turn: here the question is whether anything makes it wait. */
const slowCase: Case = {
  name: 'slow',
  concurrency: 2_048,
  rollouts: 10_000,
  warmUp: 500,
  rounds: 3,
  backend: { ttftMs: 1_000, spread: 0.2 },
}

export const benchmark: Benchmark = async ({ isQuick, say }) => {
  const folder = await mkdtemp(join(tmpdir(), 'millrace-bench-'))
  const bodies = join(folder, 'bodies.json')
  try {
    const cases = isQuick
      ? [
          { ...cpuCases[0]!, rollouts: 2_000, warmUp: 1_000, rounds: 2 },
          { ...cpuCases[1]!, rollouts: 3_000, rounds: 2 },
          { ...slowCase, rollouts: 2_000, concurrency: 1_024, rounds: 1 },
        ]
      : [...cpuCases, slowCase]
    const rows = [
      ['case', 'client', 'CPU ms/rollout', 'rollouts/s', 'wall s', 'turn CPU max ms', 'lag p99 ms', 'peak MB'],
    ]
    const figures: Record<string, number> = {}
    const bars: Bar[] = []
    let isRecorded = false
    for (const each of cases) {
      say(`${each.name}: ${each.rollouts} rollouts at ${each.concurrency}, ${each.rounds} rounds of floor and millrace`)
      await using backend = new BenchChild(new URL('../shared/backend.ts', import.meta.url), each.backend)
      const { url } = await backend.answer<{ url: string }>()
      const run = async (kind: SubjectInput['kind'], record = false): Promise<SubjectFigures> => {
        const input: SubjectInput = {
          kind,
          url: url,
          concurrency: each.concurrency,
          rollouts: record ? 1 : each.rollouts,
          warmUp: record ? 1 : each.warmUp,
          bodies,
          record,
        }
        await using child = new BenchChild(new URL('./subject.ts', import.meta.url), input)
        return await child.answer<SubjectFigures>()
      }
      if (!isRecorded) await run('millrace', true)
      isRecorded = true
      const floor: SubjectFigures[] = []
      const ours: SubjectFigures[] = []
      for (let round = 0; round < each.rounds; round += 1) {
        floor.push(await run('floor'))
        ours.push(await run('millrace'))
        say(
          `  round ${round + 1}: floor ${cpuOf(floor.at(-1)!)} ms, millrace ${cpuOf(ours.at(-1)!)} ms of CPU per rollout`,
        )
      }
      for (const [client, results] of [
        ['floor', floor],
        ['millrace', ours],
      ] as const) {
        const of = (pick: (result: SubjectFigures) => number): number => median(results.map(pick))
        const cpuMs = of((result) => result.cpuMs / result.rollouts)
        const perSecond = of((result) => (result.rollouts / result.wallMs) * 1000)
        rows.push([
          each.name,
          client,
          cpuMs.toFixed(3),
          perSecond.toFixed(0),
          (of((result) => result.wallMs) / 1000).toFixed(2),
          of((result) => result.maxTurnCpuMs).toFixed(1),
          of((result) => result.lagP99Ms).toFixed(1),
          of((result) => result.peakMemoryMb).toFixed(0),
        ])
        Object.assign(figures, {
          [`${each.name}.${client}.cpuMsPerRollout`]: cpuMs,
          [`${each.name}.${client}.rolloutsPerSecond`]: perSecond,
          [`${each.name}.${client}.wallMs`]: of((result) => result.wallMs),
          [`${each.name}.${client}.maxTurnCpuMs`]: of((result) => result.maxTurnCpuMs),
          [`${each.name}.${client}.lagP99Ms`]: of((result) => result.lagP99Ms),
          [`${each.name}.${client}.peakMemoryMb`]: of((result) => result.peakMemoryMb),
        })
      }
      const unfinished = [...floor, ...ours].reduce((sum, result) => sum + result.unfinished, 0)
      const figure = (client: string, name: string): number => figures[`${each.name}.${client}.${name}`] ?? Number.NaN
      const overFloor = (name: string): number => figure('millrace', name) / figure('floor', name)
      bars.push(
        atMost(`${each.name}: rollouts not completed, of either`, unfinished, 0),
        atMost(`${each.name}: longest turn of the loop over the floor’s`, overFloor('maxTurnCpuMs'), 4),
        atMost(`${each.name}: lag p99 over the floor’s`, overFloor('lagP99Ms'), 4),
      )
      if (each.name === 'slow') bars.push(atMost('slow: wall time over the floor’s', overFloor('wallMs'), 1.15))
      else bars.push(atMost(`${each.name}: CPU over the floor’s`, overFloor('cpuMsPerRollout'), 4))
    }
    return { table: table(rows), figures, bars }
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

function cpuOf(result: SubjectFigures): string {
  return (result.cpuMs / result.rollouts).toFixed(3)
}
