import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { z } from 'zod'
import { check, type Counts, installMs, runCase, say, sumOf } from './part.ts'
import { runProgram } from './run-program.ts'

const example = join(import.meta.dirname, '..', '..', 'examples', 'train')

const summarySchema = z.object({
  asked: z.number(),
  received: z.number(),
  scored: z.number(),
  rows: z.number(),
  split_rows: z.number(),
  injected: z.record(z.string(), z.number()),
  kills: z.record(z.string(), z.number()),
  largestDifference: z.number(),
})

/** A few steps of the example that trains, in each of its conditions: nothing is lost, and every row is what was sampled. */
export async function train(folder: string): Promise<Counts> {
  say('training for a few steps, directly and through Millrace, with and without faults')
  const env = { ...process.env, MILLRACE_TRAIN_VENV: join(folder, 'venv') }
  const words = ['--quick', '--out', join(folder, 'results')]
  const ended = await runProgram(join(example, 'run.sh'), words, { timeoutMs: installMs, env, isShown: true })
  check(ended, 'examples/train/run.sh failed')
  const text = await readFile(join(folder, 'results', 'training.json'), 'utf8')
  const { summary } = z.object({ summary: z.record(z.string(), summarySchema) }).parse(JSON.parse(text))
  const cases = ['direct', 'millrace', 'faults'].map(
    async (name) => await runCase(name, async () => described(name, summary[name])),
  )
  return sumOf(await Promise.all(cases))
}

function described(name: string, sums: z.infer<typeof summarySchema> | undefined): string {
  if (!sums) throw new Error('it did not run')
  const { asked, received, scored, rows, split_rows: split, injected, kills, largestDifference } = sums
  const faults = Object.values(injected).reduce((sum, count) => sum + count, 0)
  const found = `${asked} rollouts asked for, ${received} received, ${scored} with a reward, ${rows} rows, ${split} of them split; ${faults} faults, ${JSON.stringify(kills)} kills; log-probabilities differ by ${largestDifference} at most`
  const isWhole = received === asked && scored === asked && rows === asked && split === 0
  // Single precision, summed in two orders.
  const isExact = largestDifference < 1e-3
  const hadFaults = name !== 'faults' || (faults > 0 && (kills['millrace'] ?? 0) > 0 && (kills['tool server'] ?? 0) > 0)
  if (!isWhole || !isExact || !hadFaults) throw new Error(found)
  return found
}
