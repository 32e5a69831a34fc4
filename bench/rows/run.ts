/**
 * From stored rollouts to rows for training, beside the naive way: export the rollouts with their tokens as JSON lines, parse
 * the lines, and merge the turns in a loop. Each step in a process of its own. Files of rows are then read in Python.
 */
import { execFile } from 'node:child_process'
import { mkdtemp, rm, stat } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { BenchChild } from '../shared/bench-child.ts'
import { atLeast, atMost, type Benchmark, median, table } from '../shared/benchmark.ts'
import { type RunShape, writeRolloutRun } from './stored-run.ts'
import type { RowsFigures, RowsInput } from './subject.ts'

type Step = Pick<RowsInput, 'step' | 'rows' | 'format'>

const steps = {
  merged: { step: 'rows', rows: 'merged', format: 'binary' },
  'merged, JSON': { step: 'rows', rows: 'merged', format: 'jsonl' },
  'merged, Parquet': { step: 'rows', rows: 'merged', format: 'parquet' },
  interactions: { step: 'rows', rows: 'interactions', format: 'binary' },
  'rollouts as lines': { step: 'lines', rows: 'merged', format: 'jsonl' },
  'lines to rows': { step: 'naive', rows: 'merged', format: 'jsonl' },
} as const satisfies Record<string, Step>
type StepName = keyof typeof steps
const names = Object.keys(steps) as StepName[]

export const benchmark: Benchmark = async ({ isQuick, say }) => {
  const shape: RunShape = { tasks: isQuick ? 200 : 1250, attempts: 8, turns: 10, tokens: 2000 }
  const rollouts = shape.tasks * shape.attempts
  const tokens = rollouts * shape.tokens
  const root = await mkdtemp(join(tmpdir(), 'millrace-bench-'))
  const folder = join(root, 'run')
  const fileOf = (name: StepName): string => join(root, name === 'lines to rows' ? 'rollouts as lines' : name)
  try {
    say(`writing ${rollouts} rollouts of ${shape.turns} turns and ${shape.tokens} tokens`)
    writeRolloutRun(folder, shape)
    const found = Object.fromEntries(names.map((name) => [name, [] as RowsFigures[]])) as Record<
      StepName,
      RowsFigures[]
    >
    for (let round = 1; round <= (isQuick ? 3 : 5); round += 1) {
      for (const name of names) {
        const input: RowsInput = { ...steps[name], folder, file: fileOf(name) }
        await using child = new BenchChild(new URL('./subject.ts', import.meta.url), input)
        found[name].push(await child.answer<RowsFigures>())
      }
      say(`  round ${round}: ${(found.merged.at(-1)?.cpuMs ?? 0).toFixed(0)} ms of CPU for merged rows`)
    }
    const python = await readInPython([fileOf('merged'), fileOf('merged, JSON')])
    if (!python) say('  the Python client is not measured: name a Python with NumPy in PYTHON')
    const of = (name: StepName, figure: keyof RowsFigures): number => median(found[name].map((each) => each[figure]))
    const perSecond = (name: StepName, figure: 'cpuMs' | 'wallMs'): number => (tokens / of(name, figure)) * 1000
    const naiveCpuMs = of('rollouts as lines', 'cpuMs') + of('lines to rows', 'cpuMs')
    const lines: string[][] = [['step', 'rows', 'M tokens/s of CPU', 'M tokens/s', 'peak MB', 'bytes/token']]
    for (const name of names) {
      const { size } = await stat(fileOf(name))
      lines.push([
        name,
        String(of(name, 'rows')),
        (perSecond(name, 'cpuMs') / 1e6).toFixed(2),
        (perSecond(name, 'wallMs') / 1e6).toFixed(2),
        of(name, 'peakMemoryMb').toFixed(0),
        name === 'lines to rows' ? '' : (size / tokens).toFixed(2),
      ])
    }
    const different = (['rows', 'trainedTokens'] as const).map((figure) =>
      Math.abs(of('merged', figure) - of('lines to rows', figure)),
    )
    return {
      table: table(lines),
      figures: {
        ...Object.fromEntries(
          names.flatMap((name) => [
            [`${name}.cpuMs`, of(name, 'cpuMs')],
            [`${name}.wallMs`, of(name, 'wallMs')],
            [`${name}.peakMemoryMb`, of(name, 'peakMemoryMb')],
          ]),
        ),
        ...(python && { 'Python.tokensPerSecond': python.arrays.binaryTokensPerSecond }),
      },
      bars: [
        atLeast('merged: tokens per second of CPU', perSecond('merged', 'cpuMs'), 1_000_000),
        atLeast('merged, Parquet: tokens per second of CPU', perSecond('merged, Parquet', 'cpuMs'), 1_000_000),
        atLeast('interactions: tokens per second of CPU', perSecond('interactions', 'cpuMs'), 1_000_000),
        atMost("merged: CPU over the naive way's", of('merged', 'cpuMs') / naiveCpuMs, 1),
        atMost('merged: rows and trained tokens other than in the naive way', Math.max(...different), 0),
        ...(['arrays', 'fields'] as const).flatMap((name) =>
          python ? [atLeast(`Python client, ${name}: speed over JSON lines`, python[name].ratio, 20)] : [],
        ),
      ],
    }
  } finally {
    await rm(root, { recursive: true, force: true })
  }
}

interface Reading {
  readonly binaryTokensPerSecond: number
  readonly ratio: number
}

/** How fast the Python client reads these files; undefined if there is no Python with NumPy. */
async function readInPython(files: readonly string[]): Promise<Record<'arrays' | 'fields', Reading> | undefined> {
  const python = process.env['PYTHON'] ?? 'python3'
  const client = fileURLToPath(new URL('../../clients/python', import.meta.url))
  // The threads of NumPy would only be in each other's way.
  const env = { ...process.env, PYTHONPATH: join(client, 'src'), OMP_NUM_THREADS: '1' }
  const run = promisify(execFile)
  try {
    await run(python, ['-c', 'import numpy'])
  } catch {
    return undefined
  }
  const { stdout } = await run(python, ['-B', join(client, 'bench', 'rows.py'), ...files, '--json'], { env })
  return JSON.parse(stdout) as Record<'arrays' | 'fields', Reading>
}
