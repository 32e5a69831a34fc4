/** The measured process: one run of rollouts that compute, in so many workers. Prints one line of figures. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { registerResolver } from '../../src/env/index.ts'
import { evaluate } from '../../src/index.ts'

export interface BusyInput {
  /** None: on the main thread. */
  readonly workers?: number
  readonly rollouts: number
  readonly concurrency: number
}

export interface BusyFigures {
  readonly wallMs: number
  readonly unfinished: number
  /** Of the worst loop, as last seen: a worker's, or the run's own. */
  readonly workerLagP99Ms: number
  readonly mainLagP99Ms: number
}

registerResolver()
const { workers, rollouts, concurrency } = JSON.parse(process.argv[2] ?? '{}') as BusyInput
const root = await mkdtemp(join(tmpdir(), 'millrace-bench-'))
try {
  const run = evaluate({
    environment: join(import.meta.dirname, './busy-environment.ts'),
    model: { name: 'sim', simulator: {} },
    concurrency,
    limit: rollouts,
    preflight: false,
    ...(workers !== undefined && { workers }),
    run: { root, resume: 'never' },
  })
  let unfinished = 0
  let workerLagP99Ms = 0
  let mainLagP99Ms = 0
  for await (const record of run) {
    if (record.outcome !== 'completed') unfinished += 1
    const progress = run.progress()
    mainLagP99Ms = Math.max(mainLagP99Ms, progress.lag.p99Ms)
    for (const { lag } of progress.workers) workerLagP99Ms = Math.max(workerLagP99Ms, lag.p99Ms)
  }
  // Without the time that workers take to start: a run of any length pays that once.
  const { wallMs } = await run.summary()
  const figures: BusyFigures = { wallMs, unfinished, workerLagP99Ms, mainLagP99Ms }
  console.log(JSON.stringify(figures))
} finally {
  await rm(root, { recursive: true, force: true })
}
