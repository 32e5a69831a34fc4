/**
 * A process with many rollouts that all wait for a backend which never answers. Prints what they hold, then goes on waiting
 * until it is ended.
 */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { request } from 'undici'
import { registerResolver } from '../../src/env/index.ts'
import { evaluate } from '../../src/index.ts'
import { descriptorBudget } from '../../src/http/descriptor-budget.ts'
import { settleHeapForRollouts } from '../../src/kit/index.ts'

export interface WaitingInput {
  readonly url: string
  readonly rollouts: number
}

export interface WaitingFigures {
  readonly rollouts: number
  /** Of those, how many have a connection; the others wait for one. */
  readonly connected: number
  /** Used by JavaScript, buffers included, after a collection. */
  readonly heapKb: number
  readonly residentMb: number
  readonly peakMb: number
}

const { url, rollouts } = JSON.parse(process.argv[2] ?? '{}') as WaitingInput
registerResolver()
// As the command line does.
settleHeapForRollouts()
const root = await mkdtemp(join(tmpdir(), 'millrace-bench-'))
const stop = new AbortController()
process.once('SIGTERM', () => stop.abort())
const run = evaluate({
  environment: join(import.meta.dirname, '../shared/environment.ts'),
  model: { name: 'hung', backends: [{ url }], price: { input: 0, output: 0 } },
  concurrency: rollouts,
  preflight: false,
  run: { root, resume: 'never' },
  signal: stop.signal,
})
const summary = run.summary()
await run.started
const expected = Math.min(rollouts, descriptorBudget())
let connected = 0
while (connected < expected || run.progress().active < rollouts) {
  await pause(50)
  connected = await inFlight()
}
console.log(JSON.stringify(await measure()))
await summary
await rm(root, { recursive: true, force: true })

async function measure(): Promise<WaitingFigures> {
  // The second collection frees what the first one's finalizers let go of.
  for (let collection = 0; collection < 2; collection += 1) {
    globalThis.gc?.()
    await pause(100)
  }
  const { heapUsed, external, rss } = process.memoryUsage()
  return {
    rollouts,
    connected,
    heapKb: (heapUsed + external) / 1024,
    residentMb: rss / 2 ** 20,
    peakMb: process.resourceUsage().maxRSS / 1024,
  }
}

async function inFlight(): Promise<number> {
  const { body } = await request(new URL('/sim/stats', url))
  return ((await body.json()) as { inFlight: number }).inFlight
}
