/** The measured process: so many rollouts at once through the engine, with three shared servers. Prints what became of them. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { registerResolver } from '../../src/env/index.ts'
import { evaluate } from '../../src/index.ts'
import { settleHeapForRollouts } from '../../src/kit/index.ts'

export interface MemoryInput {
  readonly rollouts: number
}

export interface MemoryOutcome {
  readonly wallMs: number
  /** Rollouts that did not get all their answers. */
  readonly unfinished: number
}

const { rollouts } = JSON.parse(process.argv[2] ?? '{}') as MemoryInput
// For whoever watches all processes from outside.
console.log(JSON.stringify(process.pid))
registerResolver()
// As the command line does.
settleHeapForRollouts()
const root = await mkdtemp(join(tmpdir(), 'millrace-bench-'))
const startedAt = performance.now()
let unfinished = 0
try {
  const run = evaluate({
    environment: join(import.meta.dirname, './environment.ts'),
    options: { rollouts },
    model: 'sim',
    concurrency: rollouts,
    run: { root, resume: 'never' },
  })
  for await (const { outcome, reward } of run) if (outcome !== 'completed' || reward !== 1) unfinished += 1
} finally {
  await rm(root, { recursive: true, force: true })
}
console.log(JSON.stringify({ wallMs: performance.now() - startedAt, unfinished } satisfies MemoryOutcome))
