/** The measured process of the lag benchmark: Millrace as shipped, or the naive version. Prints one line of figures. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { LoopWatch, type LoopFigures } from '../shared/loop-watch.ts'
import { runNaive } from './naive.ts'

/** So many rollouts at once, each of so many turns, and then it is over. */
export interface LagWork {
  readonly url: string
  readonly concurrency: number
  readonly turns: number
  readonly folder: string
}

export interface LagInput extends Omit<LagWork, 'folder'> {
  readonly kind: 'naive' | 'millrace'
}

export interface LagFigures extends LoopFigures {
  readonly wallMs: number
  readonly cpuMs: number
  readonly peakMemoryMb: number
  readonly replyP50Ms: number
  readonly replyP99Ms: number
  readonly decodeThreads: number
  readonly decodeWaitP99Ms: number
  readonly unfinished: number
}

const input = JSON.parse(process.argv[2] ?? '{}') as LagInput
const folder = await mkdtemp(join(tmpdir(), 'millrace-bench-'))
try {
  // Compiled and connected by the time it counts, as a process is that runs for hours.
  await work({ ...input, concurrency: 256, turns: 2, folder })
  const watch = new LoopWatch()
  const cpuBefore = process.cpuUsage()
  const startedAt = performance.now()
  const { replyMs, ...more } = await work({ ...input, folder })
  const wallMs = performance.now() - startedAt
  const { user, system } = process.cpuUsage(cpuBefore)
  const sorted = Float64Array.from(replyMs).sort()
  const figures: LagFigures = {
    ...watch.stop(),
    wallMs,
    cpuMs: (user + system) / 1000,
    peakMemoryMb: process.resourceUsage().maxRSS / 1024,
    replyP50Ms: sorted[Math.floor(sorted.length / 2)] ?? Number.NaN,
    replyP99Ms: sorted[Math.floor(sorted.length * 0.99)] ?? Number.NaN,
    ...more,
    unfinished: input.concurrency * input.turns - sorted.length,
  }
  console.log(JSON.stringify(figures))
} finally {
  await rm(folder, { recursive: true, force: true })
}

interface WorkFigures extends Pick<LagFigures, 'decodeThreads' | 'decodeWaitP99Ms'> {
  readonly replyMs: readonly number[]
}

async function work(given: LagWork): Promise<WorkFigures> {
  if (input.kind === 'naive') return { replyMs: await runNaive(given), decodeThreads: 0, decodeWaitP99Ms: 0 }
  const { evaluate } = await import('../../src/index.ts')
  const { registerResolver } = await import('../../src/env/index.ts')
  const { decodePool } = await import('../../src/inference/index.ts')
  const { settleHeapForRollouts } = await import('../../src/kit/index.ts')
  registerResolver()
  // As the command line does.
  settleHeapForRollouts()
  const run = evaluate({
    environment: join(import.meta.dirname, './environment.ts'),
    options: { turns: given.turns },
    model: { name: 'bench', backends: [{ url: given.url }], price: { input: 0, output: 0 } },
    concurrency: given.concurrency,
    limit: given.concurrency,
    captureTokens: true,
    preflight: false,
    run: { root: given.folder, resume: 'never' },
  })
  const info = await run.started
  let decode = decodePool.status()
  for await (const _record of run) decode = decodePool.status()
  return {
    replyMs: replyTimes(join(info.folder, 'journal.sqlite')),
    decodeThreads: decode.threads,
    decodeWaitP99Ms: decode.waitP99Ms,
  }
}

/** From the first byte sent to the reply in hand, decoding included, as the journal has it for every call. */
function replyTimes(path: string): number[] {
  const database = new DatabaseSync(path, { readOnly: true })
  try {
    const rows = database.prepare('SELECT meta FROM node WHERE sampled = 1').all() as { meta: string }[]
    return rows.map(({ meta }) => (JSON.parse(meta) as { call: { ms: number } }).call.ms)
  } finally {
    database.close()
  }
}
