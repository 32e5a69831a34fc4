import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect } from 'vitest'
import { loadEnvironment } from '../../../src/env/index.ts'
import { resolveModelConfig } from '../../../src/inference/index.ts'
import { hash32 } from '../../../src/kit/index.ts'
import { Scheduler, type PlannedRollout } from '../../../src/rollout/index.ts'
import { defaultLimits, type Outcome, type RolloutRecord } from '../../../src/schema/index.ts'
import { RunReader, RunStore } from '../../../src/store/index.ts'
import { WorkerPool, type WorkerPoolOptions } from '../../../src/worker/index.ts'

export interface PooledRun {
  readonly pool: WorkerPool
  readonly scheduler: Scheduler
  /** Settled so far. */
  readonly records: readonly RolloutRecord[]
  /** Where rollouts have run, as they noted themselves: process, thread, and how large the heap may become there. */
  places(): readonly { readonly pid: number; readonly thread: number; readonly heapMb: number }[]
  /** Lets rollouts that were held go on. */
  open(): void
}

export interface PooledRunOptions {
  readonly root: string
  readonly kind: 'thread' | 'process'
  readonly count: number
  readonly options?: Readonly<Record<string, unknown>>
  readonly environment?: string
  readonly size?: number
  readonly concurrency?: number
  readonly supervision?: WorkerPoolOptions['supervision']
  readonly onBlocked?: WorkerPoolOptions['onBlocked']
  /** Whether the model never answers. */
  readonly isModelHung?: boolean
  /** Whether rollouts wait for `open`, so that something can be done to them. */
  readonly startsPaused?: boolean
  /** Goes on while the rollouts run. */
  readonly during?: (run: PooledRun) => Promise<void>
}

/** A run as `evaluate` puts it together, with its pool in the open. */
export async function pooledRun(given: PooledRunOptions): Promise<readonly RolloutRecord[]> {
  const { root, kind, count, size = 2, concurrency = 50 } = given
  const specifier = join(import.meta.dirname, '../../fixtures', `${given.environment ?? 'workers/mishaps'}.ts`)
  const log = join(root, 'log')
  const gate = join(root, 'gate')
  const options = { count, log, ...(given.startsPaused && { gate }), ...given.options }
  const { environment, options: parsed } = await loadEnvironment(specifier, options)
  const create = { name: 'pooled', configDigest: 'digest', config: {}, provenance: {} }
  await using store = await RunStore.open({ folder: join(root, 'run'), create })
  await using pool = await WorkerPool.start({
    size,
    kind,
    start: {
      specifier,
      options,
      settings: {
        model: 'sim',
        judge: 'sim',
        asked: ['sim'],
        judgeConcurrency: 1,
        limits: defaultLimits,
        sampling: {},
        captureTokens: false,
        sendSeed: true,
      },
      models: [given.isModelHung ? hungSimulator : simulator],
    },
    connectJournal: () => store.connect(),
    ...(given.supervision && { supervision: given.supervision }),
    ...(given.onBlocked && { onBlocked: given.onBlocked }),
  })
  const records: RolloutRecord[] = []
  const scheduler = new Scheduler({
    labels: { environment: environment.name, model: 'sim' },
    executor: pool,
    journal: store.journal,
    reader: store.reader,
    concurrency,
    retries: 0,
    group: { size: 1, policy: 'keep', isScored: false },
    seedOf: (id, attempt) => hash32(id, attempt),
    onSettled: (record) => void records.push(record),
    onAttemptEnd: () => {},
    onAdmissionEnd: () => {},
  })
  const places: PooledRun['places'] = () => {
    const lines = existsSync(log) ? readFileSync(log, 'utf8').trimEnd().split('\n') : []
    return Array.from(new Set(lines), (line) => {
      const [pid = 0, thread = 0, heapMb = 0] = line.split(' ').map(Number)
      return { pid, thread, heapMb }
    })
  }
  const open = (): void => writeFileSync(gate, '')
  async function* plans(): AsyncGenerator<PlannedRollout, void, void> {
    const tasks = (await environment.tasks(parsed)) as Iterable<unknown>
    let index = 0
    for (const data of tasks) {
      const task = { index, id: String(index), data }
      store.journal.append({ kind: 'task', index, id: task.id, digest: '' })
      yield { kind: 'attempt', id: `${index}-0`, sample: 0, task, attempt: 1 }
      index += 1
    }
  }
  await Promise.all([scheduler.run(plans()), given.during?.({ pool, scheduler, records, places, open })])
  return records
}

const simulator = resolveModelConfig({
  model: { name: 'sim', simulator: {}, maxConcurrency: 1_000 },
  env: {},
})
const hungSimulator = { ...simulator, simulator: { 'faults.hang': 1 } }

/** Each rollout has one result, in the database, in the file of lines and in what was reported. */
export function expectOneOutcomeEach(root: string, records: readonly RolloutRecord[], count: number): void {
  const folder = join(root, 'run')
  using reader = RunReader.open(folder)
  expect(reader.integrity()).toEqual([])
  const stored = Array.from(reader.ended(), ({ rollout }) => rollout).toSorted()
  expect(stored).toHaveLength(count)
  expect(new Set(stored).size).toBe(count)
  expect(records.map(({ id }) => id).toSorted()).toEqual(stored)
  expect([...reader.unfinished()]).toEqual([])
  expect([...reader.events('duplicate-result'), ...reader.events('attempt-unknown')]).toEqual([])
  const lines = readFileSync(join(folder, 'rollouts.jsonl'), 'utf8').trimEnd().split('\n')
  expect(lines.map((line) => (JSON.parse(line) as RolloutRecord).id).toSorted()).toEqual(stored)
}

export function countOutcomes(records: readonly RolloutRecord[]): Partial<Record<Outcome, number>> {
  const counts: Partial<Record<Outcome, number>> = {}
  for (const { outcome } of records) counts[outcome] = (counts[outcome] ?? 0) + 1
  return counts
}

/** So many rollouts run, in whatever worker. */
export async function areRunning({ pool }: PooledRun, count: number): Promise<void> {
  await expect.poll(() => pool.workers().reduce((sum, { running }) => sum + running, 0)).toBe(count)
}

/** Of all workers together. */
export function restarts({ pool }: PooledRun): number {
  return pool.workers().reduce((sum, worker) => sum + worker.restarts, 0)
}
