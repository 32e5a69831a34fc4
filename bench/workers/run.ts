/**
 * What a second worker brings: rollouts with 20 ms of CPU each against the simulator in the worker itself, with one worker
 * and with two, turn about. On two cores twice as much is the most there can be; the main thread and the journal's writer
 * need some of it. And how soon it shows that a worker was killed.
 */
import { atLeast, atMost, median, table, type Benchmark } from '../shared/benchmark.ts'
import type { BusyFigures, BusyInput } from './busy-subject.ts'
import { BenchChild } from '../shared/bench-child.ts'
import type { DeathFigures, DeathInput } from './death-subject.ts'

const subjects = [
  { name: 'main thread', workers: undefined },
  { name: '1 worker', workers: 1 },
  { name: '2 workers', workers: 2 },
] as const

export const benchmark: Benchmark = async ({ isQuick, say }) => {
  const rollouts = isQuick ? 400 : 2_000
  const rounds = isQuick ? 2 : 5
  const results = new Map<string, BusyFigures[]>(subjects.map(({ name }) => [name, []]))
  for (let round = 0; round < rounds; round += 1) {
    for (const { name, workers } of subjects) {
      const input: BusyInput = { rollouts, concurrency: 64, ...(workers !== undefined && { workers }) }
      await using child = new BenchChild(new URL('./busy-subject.ts', import.meta.url), input)
      const figures = await child.answer<BusyFigures>()
      results.get(name)?.push(figures)
      say(`round ${round + 1}, ${name}: ${perSecond(figures, rollouts).toFixed(1)} rollouts/s`)
    }
  }
  const rows = [['where', 'rollouts/s', 'wall s', 'main lag p99 ms', 'worker lag p99 ms']]
  const figures: Record<string, number> = {}
  for (const { name } of subjects) {
    const of = (pick: (result: BusyFigures) => number): number => median((results.get(name) ?? []).map(pick))
    const rate = of((result) => perSecond(result, rollouts))
    const mainLag = of((result) => result.mainLagP99Ms)
    const workerLag = of((result) => result.workerLagP99Ms)
    rows.push([
      name,
      rate.toFixed(1),
      (of(({ wallMs }) => wallMs) / 1000).toFixed(2),
      mainLag.toFixed(1),
      workerLag.toFixed(1),
    ])
    const key = name.replace(' ', '-')
    Object.assign(figures, { [`${key}.rolloutsPerSecond`]: rate, [`${key}.mainLagP99Ms`]: mainLag })
    Object.assign(figures, { [`${key}.workerLagP99Ms`]: workerLag })
  }
  await using child = new BenchChild(new URL('./death-subject.ts', import.meta.url), {
    deaths: isQuick ? 3 : 9,
  } satisfies DeathInput)
  const { noticedMs } = await child.answer<DeathFigures>()
  say(`deaths noticed after ${noticedMs.map((ms) => ms.toFixed(1)).join(', ')} ms`)
  const deathNoticedMs = median(noticedMs)
  const unfinished = [...results.values()].flat().reduce((sum, result) => sum + result.unfinished, 0)
  const gain = (figures['2-workers.rolloutsPerSecond'] ?? 0) / (figures['1-worker.rolloutsPerSecond'] ?? Number.NaN)
  return {
    table: table(rows),
    figures: { ...figures, gain, deathNoticedMs },
    bars: [
      atMost('rollouts not completed', unfinished, 0),
      atLeast('throughput of two workers over that of one', gain, 1.7),
    ],
  }
}

function perSecond({ wallMs }: BusyFigures, rollouts: number): number {
  return (rollouts / wallMs) * 1000
}
