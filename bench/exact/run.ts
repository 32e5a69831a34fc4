/**
 * What a later turn costs with exact tokens, after a short and after a long context, with the same new text in it: it should cost
 * what is new. The engine is in the process and answers at once, so that a turn is what Millrace does.
 */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { atMost, median, table, type Benchmark } from '../shared/benchmark.ts'
import { BenchChild } from '../shared/bench-child.ts'
import type { ExactFigures, ExactInput, TurnCost } from './subject.ts'

const short = 400
const long = 40_000

export const benchmark: Benchmark = async ({ isQuick, say }) => {
  const root = await mkdtemp(join(tmpdir(), 'millrace-bench-'))
  try {
    const [rounds, conversations] = isQuick ? [5, 6] : [9, 12]
    say(`${rounds} rounds of ${conversations} conversations after ${short} and after ${long} tokens`)
    const input: ExactInput = { root, contexts: [short, long], rounds, conversations }
    await using child = new BenchChild(new URL('./subject.ts', import.meta.url), input)
    const found = await child.answer<ExactFigures>()
    const of = (costs: readonly TurnCost[], context: number) => {
      const own = costs.filter((cost) => cost.context === context)
      const middle = (name: 'cpuUs' | 'tokens') => median(own.map((cost) => cost[name]))
      // The best round: what else the machine does only ever adds to the time of a turn, and may be most of it.
      const wallUs = Math.min(...own.map((cost) => cost.wallUs))
      return { tokens: middle('tokens'), wallUs, cpuUs: middle('cpuUs') }
    }
    const parts = [
      ['prompt made and reply read', of(found.prompt, short), of(found.prompt, long)],
      ['prompt rendered and encoded anew', of(found.anew, short), of(found.anew, long)],
      ['turn of a rollout, stored', of(found.rollout, short), of(found.rollout, long)],
    ] as const
    const [[, promptShort, promptLong], [, , anewLong], [, rolloutShort, rolloutLong]] = parts
    const ratios = {
      'prompt.cpu': promptLong.cpuUs / promptShort.cpuUs,
      'prompt.wall': promptLong.wallUs / promptShort.wallUs,
      'rollout.cpu': rolloutLong.cpuUs / rolloutShort.cpuUs,
      'rollout.wall': rolloutLong.wallUs / rolloutShort.wallUs,
    }
    const rows = parts.flatMap(([what, ...costs]) =>
      costs.map(({ tokens, wallUs, cpuUs }) => [what, String(tokens), wallUs.toFixed(0), cpuUs.toFixed(0)]),
    )
    return {
      table: table([['a turn', 'last prompt, tokens', 'wall µs', 'CPU µs'], ...rows]),
      figures: {
        ...Object.fromEntries(Object.entries(ratios).map(([name, ratio]) => [`${name}Ratio`, ratio])),
        'anew.cpuRatio': anewLong.cpuUs / promptLong.cpuUs,
        'prompt.cpuUs': promptShort.cpuUs,
        'rollout.cpuUs': rolloutShort.cpuUs,
      },
      bars: [
        atMost(`prompt and reply: CPU after ${long} tokens, times that after ${short}`, ratios['prompt.cpu'], 1.3),
        atMost(`turn of a rollout: CPU after ${long} tokens, times that after ${short}`, ratios['rollout.cpu'], 1.3),
      ],
    }
  } finally {
    await rm(root, { recursive: true, force: true })
  }
}
