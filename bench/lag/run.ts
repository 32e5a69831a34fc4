/**
 * What long replies and long rollouts do to the event loop: rollouts of many turns with token ids, log-probabilities and,
 * on a tenth of them, routed experts, all at once and ending close together. Against the naive version of the same, turn
 * about in the same run: everything on one loop, lists as JSON has them, put together at the end.
 */
import { atMost, median, table, type Bar, type Benchmark } from '../shared/benchmark.ts'
import { BenchChild } from '../shared/bench-child.ts'
import type { LagBackendInput } from './backend.ts'
import type { LagFigures, LagInput } from './subject.ts'

interface Case {
  readonly name: string
  readonly concurrency: number
  readonly turns: number
  readonly rounds: number
  readonly backend: LagBackendInput
}

/** The backend asks for more than the naive version can take, and leaves a third of the machine to ours. */
const long: Case = {
  name: 'long',
  concurrency: 256,
  turns: 100,
  rounds: 3,
  backend: { tokens: 2_000, mixture: [4, 4], delayMs: 400 },
}
const many: Case = {
  name: 'many',
  concurrency: 2_048,
  turns: 10,
  rounds: 3,
  backend: { tokens: 256, mixture: [4, 4], delayMs: 2_000 },
}

/** The naive version holds all lists of all rollouts until they end: more than a heap has room for by default. */
const naiveHeapMb = 16_384

const kinds = ['naive', 'millrace'] as const

export const benchmark: Benchmark = async ({ isQuick, say }) => {
  const cases = isQuick
    ? [
        { ...long, turns: 10, rounds: 1 },
        { ...many, turns: 3, rounds: 1 },
      ]
    : [long, many]
  const rows = [
    [
      'case',
      'client',
      'turns/s',
      'wall s',
      'CPU ms/turn',
      'turn CPU max ms',
      'lag p99 ms',
      'lag max ms',
      'reply p50 ms',
      'reply p99 ms',
      'decode wait p99 ms',
      'peak MB',
    ],
  ]
  const figures: Record<string, number> = {}
  const bars: Bar[] = []
  for (const each of cases) {
    const { tokens } = each.backend
    say(`${each.name}: ${each.concurrency} rollouts of ${each.turns} turns of ${tokens} tokens, ${each.rounds} rounds`)
    const results = await measure(each, say)
    for (const kind of kinds) {
      const of = (pick: (result: LagFigures) => number): number => median(results[kind].map(pick))
      const turns = each.concurrency * each.turns
      const measured = {
        turnsPerSecond: of(({ wallMs }) => (turns / wallMs) * 1000),
        wallMs: of(({ wallMs }) => wallMs),
        cpuMsPerTurn: of(({ cpuMs }) => cpuMs / turns),
        maxTurnCpuMs: of(({ maxTurnCpuMs }) => maxTurnCpuMs),
        lagP99Ms: of(({ lagP99Ms }) => lagP99Ms),
        lagMaxMs: of(({ lagMaxMs }) => lagMaxMs),
        replyP50Ms: of(({ replyP50Ms }) => replyP50Ms),
        replyP99Ms: of(({ replyP99Ms }) => replyP99Ms),
        decodeWaitP99Ms: of(({ decodeWaitP99Ms }) => decodeWaitP99Ms),
        peakMemoryMb: of(({ peakMemoryMb }) => peakMemoryMb),
        decodeThreads: of(({ decodeThreads }) => decodeThreads),
      }
      for (const [name, value] of Object.entries(measured)) figures[`${each.name}.${kind}.${name}`] = value
      rows.push([
        each.name,
        kind,
        measured.turnsPerSecond.toFixed(0),
        (measured.wallMs / 1000).toFixed(2),
        measured.cpuMsPerTurn.toFixed(2),
        measured.maxTurnCpuMs.toFixed(1),
        measured.lagP99Ms.toFixed(1),
        measured.lagMaxMs.toFixed(0),
        measured.replyP50Ms.toFixed(0),
        measured.replyP99Ms.toFixed(0),
        measured.decodeWaitP99Ms.toFixed(1),
        measured.peakMemoryMb.toFixed(0),
      ])
    }
    const unfinished = kinds.flatMap((kind) => results[kind]).reduce((sum, result) => sum + result.unfinished, 0)
    bars.push(atMost(`${each.name}: turns not completed, of either`, unfinished, 0), ...barsOf(each, figures))
  }
  return { table: table(rows), figures, bars }
}

async function measure(each: Case, say: (line: string) => void): Promise<Record<LagInput['kind'], LagFigures[]>> {
  await using backend = new BenchChild(new URL('./backend.ts', import.meta.url), each.backend)
  const { url } = await backend.answer<{ url: string }>()
  const results: Record<LagInput['kind'], LagFigures[]> = { naive: [], millrace: [] }
  for (let round = 0; round < each.rounds; round += 1) {
    for (const kind of kinds) {
      const input: LagInput = { kind, url, concurrency: each.concurrency, turns: each.turns }
      const heap = kind === 'naive' ? { nodeArguments: [`--max-old-space-size=${naiveHeapMb}`] } : {}
      await using child = new BenchChild(new URL('./subject.ts', import.meta.url), input, heap)
      const result = await child.answer<LagFigures>()
      results[kind].push(result)
      const { wallMs, lagP99Ms, lagMaxMs } = result
      say(
        `  round ${round + 1}, ${kind}: ${(wallMs / 1000).toFixed(1)} s, lag p99 ${lagP99Ms.toFixed(0)} and max ${lagMaxMs.toFixed(0)} ms`,
      )
    }
  }
  return results
}

function barsOf({ name }: Case, figures: Readonly<Record<string, number>>): Bar[] {
  const figure = (kind: string, key: string): number => figures[`${name}.${kind}.${key}`] ?? Number.NaN
  const overNaive = (key: string): number => figure('millrace', key) / figure('naive', key)
  if (name === 'many') return [atMost('many: longest lag over the naive version’s', overNaive('lagMaxMs'), 1)]
  const speed = overNaive('turnsPerSecond')
  return [
    atMost('long: longest turn of the loop over the naive version’s', overNaive('maxTurnCpuMs'), 0.25),
    atMost('long: lag p99 over the naive version’s', overNaive('lagP99Ms'), 0.25),
    { name: 'long: turns per second over the naive version’s', value: speed, bar: 'at least 1.2', holds: speed >= 1.2 },
    atMost('long: reply p99 over the naive version’s', overNaive('replyP99Ms'), 1),
  ]
}
