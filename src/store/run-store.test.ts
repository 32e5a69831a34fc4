import { once } from 'node:events'
import { mkdirSync, readdirSync, readFileSync, rmSync, statSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { setTimeout as pause } from 'node:timers/promises'
import { Worker } from 'node:worker_threads'
import { expect, test } from 'vitest'
import { RunLock } from './run/run-lock.ts'
import { readRunFile } from './run/run-file.ts'
import { runFiles } from './run/run-folder.ts'
import { RunReader } from './read/run-reader.ts'
import { RunStore } from './run-store.ts'
import { JournalClient } from './write/journal-client.ts'
import {
  newRun,
  nodeEntry,
  rolloutEntries,
  temporaryFolder,
  type RolloutShape,
} from '../../test/support/store/fixtures.ts'
import type { Journal } from './write/journal.ts'

/** Appends all of one ended rollout for each of the tasks, none of them in parts. */
function appendRollouts(journal: Journal, tasks: readonly number[], shape: RolloutShape = {}): void {
  for (const task of tasks) journal.appendAll(rolloutEntries(task, shape))
}

/** How many transactions the write-ahead log holds: a frame that ends one carries the size of the database. */
function commitsIn(path: string): number {
  const log = readFileSync(path)
  const frameBytes = 24 + log.readUInt32BE(8)
  const salts = log.readBigUInt64BE(16)
  let commits = 0
  for (let offset = 32; offset + frameBytes <= log.length; offset += frameBytes) {
    if (log.readBigUInt64BE(offset + 8) === salts && log.readUInt32BE(offset + 4) > 0) commits += 1
  }
  return commits
}

test('a watcher hears of the messages of its rollout once they can be read, until it leaves', async () => {
  using root = temporaryFolder()
  await using store = await RunStore.open({ folder: join(root.path, 'run'), create: newRun() })
  const heard: { attempt: number; seqs: number[] }[] = []
  const watch = store.watch('0-0', (attempt) => {
    const seqs = store.reader.nodes('0-0', attempt).map(({ seq }) => seq)
    heard.push({ attempt, seqs })
  })
  const record = async (rollout: string, seq: number): Promise<void> => {
    store.journal.append(nodeEntry({ rollout, seq }))
    await store.journal.durable()
  }
  await record('0-1', 0)
  await record('0-0', 0)
  await record('0-0', 1)
  await expect.poll(() => heard.at(-1)).toEqual({ attempt: 1, seqs: [0, 1] })
  const { length } = heard
  watch[Symbol.dispose]()
  using other = store.watch('0-1', (attempt) => heard.push({ attempt, seqs: [] }))
  await record('0-0', 2)
  await record('0-1', 1)
  // What the writer says comes in order.
  await expect.poll(() => heard.length).toBe(length + 1)
  expect(other).toBeDefined()
})

test('durable entries can be read at once, in the order of their appends', async () => {
  using root = temporaryFolder()
  const folder = join(root.path, 'run')
  await using store = await RunStore.open({ folder, create: newRun() })
  expect(store.isResumed).toBe(false)
  const start = { kind: 'attempt-start', attempt: 1, parent: null, task: 0, sample: 0, at: 1 } as const
  await Promise.all(
    Array.from({ length: 20 }, async (_, writer) => {
      const rollout = `0-${writer}`
      store.journal.append({ ...start, rollout })
      for (let seq = 0; seq < 25; seq += 1) {
        store.journal.append(nodeEntry({ rollout, seq }))
        await store.journal.durable()
        expect(store.reader.nodes(rollout, 1).at(-1)?.seq).toBe(seq)
      }
    }),
  )
  for (let writer = 0; writer < 20; writer += 1) {
    const seqs = store.reader.nodes(`0-${writer}`, 1).map((node) => node.seq)
    expect(seqs).toEqual(Array.from({ length: 25 }, (_, seq) => seq))
  }
})

test('a run without its journal is not started again, though it has no results', async () => {
  using root = temporaryFolder()
  const folder = join(root.path, 'run')
  await (await RunStore.open({ folder, create: newRun() })).close()
  rmSync(join(folder, runFiles.database))
  await expect(RunStore.open({ folder, create: newRun() })).rejects.toThrow(
    'was worked on, but its journal.sqlite is gone',
  )
})

test.each([0.5, 0.001])(
  'a journal that was cut off is reported as damaged, because another launch would not help',
  async (part) => {
    using root = temporaryFolder()
    const folder = join(root.path, 'run')
    {
      await using store = await RunStore.open({ folder, create: newRun() })
      appendRollouts(store.journal, [1, 2, 3])
      await store.finish('unfinished')
    }
    const journal = join(folder, runFiles.database)
    truncateSync(journal, Math.floor(statSync(journal).size * part))
    await expect(RunStore.open({ folder, create: newRun() })).rejects.toMatchObject({
      code: 'store_failed',
      rawMessage: expect.stringMatching(
        /the database of the run in .* is damaged \(.*\); restore it from a copy, recover what .* with `sqlite3 journal\.sqlite "\.recover"`, or start/,
      ),
    })
  },
)

test('results without their journal are not changed', async () => {
  using root = temporaryFolder()
  const folder = join(root.path, 'run')
  await using first = await RunStore.open({ folder, create: newRun() })
  await first.close()
  writeFileSync(join(folder, runFiles.lines), '{}\n')
  rmSync(join(folder, runFiles.database))
  await expect(RunStore.open({ folder })).rejects.toMatchObject({ code: 'store_failed' })
  writeFileSync(join(folder, runFiles.database), '')
  await expect(RunStore.open({ folder, create: newRun() })).rejects.toThrow('journal.sqlite is gone')
  expect(readFileSync(join(folder, runFiles.lines), 'utf8')).toBe('{}\n')
})

test('entries are acknowledged only after their commit', async () => {
  using root = temporaryFolder()
  await using store = await RunStore.open({ folder: join(root.path, 'run'), create: newRun() })
  using blocker = new DatabaseSync(join(store.folder, runFiles.database))
  blocker.exec('BEGIN IMMEDIATE')
  appendRollouts(store.journal, [1])
  let acknowledged = false
  const wasCommitted = store.journal.durable()?.then(() => {
    acknowledged = true
    return store.reader.hasEnded('1-0')
  })
  for (let turn = 0; turn < 100; turn += 1) await new Promise(setImmediate)
  expect(acknowledged).toBe(false)
  blocker.exec('ROLLBACK')
  expect(await wasCommitted).toBe(true)
})

test('the writer publishes its commit counts and its lag', async () => {
  using root = temporaryFolder()
  await using store = await RunStore.open({ folder: join(root.path, 'run'), create: newRun() })
  expect(store.status()).toEqual({ commits: 0, entries: 0, commitMs: 0, slowestCommitMs: 0 })
  using blocker = new DatabaseSync(join(store.folder, runFiles.database), { timeout: 10_000 })
  let commits = 0
  /** A commit that has to wait for the database, and what the figures say that it took. */
  const heldUpMs = async (): Promise<number> => {
    const before = store.status()
    blocker.exec('BEGIN IMMEDIATE')
    appendRollouts(store.journal, [commits])
    const durable = store.journal.durable()
    await pause(100)
    // The writer's loop stands still meanwhile, so whatever it says must come from before or after.
    expect(store.status().commits).toBe(commits)
    blocker.exec('ROLLBACK')
    await durable
    commits += 1
    expect(store.status()).toMatchObject({ commits, entries: before.entries + rolloutEntries(1).length })
    return store.status().commitMs - before.commitMs
  }
  // Again until it was seen: on a busy machine the writer may begin only when nobody is in its way any more.
  await expect.poll(heldUpMs).toBeGreaterThan(50)
  await expect.poll(async () => (await heldUpMs()) && store.status().slowestCommitMs).toBeGreaterThan(50)
  await expect.poll(async () => (await heldUpMs()) && store.lag().maxMs).toBeGreaterThan(20)
  await expect.poll(async () => (await heldUpMs()) && store.lag().utilization).toBeGreaterThan(0)
})

test('pending entries of all clients are committed together', async () => {
  using root = temporaryFolder()
  await using store = await RunStore.open({ folder: join(root.path, 'run'), create: newRun() })
  await using second = new JournalClient(store.connect())
  await using third = new JournalClient(store.connect())
  const clients = [store.journal, second, third]
  for (const [index, client] of clients.entries()) {
    appendRollouts(client, [1000 + index])
    await client.durable()
  }
  const path = join(store.folder, `${runFiles.database}-wal`)
  const before = commitsIn(path)
  using blocker = new DatabaseSync(join(store.folder, runFiles.database))
  blocker.exec('BEGIN IMMEDIATE')
  for (const [index, client] of clients.entries()) {
    for (let task = 0; task < 50; task += 1) appendRollouts(client, [index * 100 + task])
  }
  const durable = Promise.all(clients.map(async (client) => client.durable()))
  // All three have sent their batch by now; the first one that arrived waits for the blocker.
  for (let turn = 0; turn < 3; turn += 1) await new Promise(setImmediate)
  blocker.exec('ROLLBACK')
  await durable
  expect(store.reader.counts().ended).toBe(153)
  expect(commitsIn(path) - before).toBe(1)
})

test('a closed run has one database file, its lines and its description', async () => {
  using root = temporaryFolder()
  const folder = join(root.path, 'run')
  {
    await using store = await RunStore.open({ folder, create: newRun() })
    appendRollouts(store.journal, [1, 2])
    await store.finish('complete', { end: 'complete', provenance: { taskDigest: 'd' } })
  }
  expect(readdirSync(folder).toSorted()).toEqual(['journal.sqlite', 'lock', 'rollouts.jsonl', 'run.json'])
  expect(readRunFile(folder)).toMatchObject({
    state: 'complete',
    provenance: { taskDigest: 'd' },
    launches: [{ end: 'complete', endedAt: expect.any(String) }],
  })
})

test('closing writes pending entries, leaves a resumable run, and may be repeated', async () => {
  using root = temporaryFolder()
  const folder = join(root.path, 'run')
  const store = await RunStore.open({ folder, create: newRun() })
  appendRollouts(store.journal, [1, 2, 3])
  const closing = store.close()
  expect(store.close()).toBe(closing)
  await closing
  await store[Symbol.asyncDispose]()
  expect(readRunFile(folder)?.state).toBe('unfinished')
  expect(RunLock.isHeld(folder)).toBe(false)
  await expect(store.journal.durable()).rejects.toMatchObject({ code: 'closed' })
  expect(() => store.connect()).toThrow(expect.objectContaining({ code: 'closed' }))

  await using again = await RunStore.open({ folder, create: newRun() })
  expect(again.isResumed).toBe(true)
  expect(again.reader.counts().ended).toBe(3)
  expect(again.reader.integrity()).toEqual([])
})

test('an abort during opening releases the lock', async () => {
  using root = temporaryFolder()
  const folder = join(root.path, 'run')
  const controller = new AbortController()
  const opening = RunStore.open({ folder, create: newRun(), signal: controller.signal })
  controller.abort(new Error('changed my mind'))
  await expect(opening).rejects.toThrow('changed my mind')
  expect(RunLock.isHeld(folder)).toBe(false)
  await expect(RunStore.open({ folder, signal: controller.signal })).rejects.toThrow('changed my mind')
  await using store = await RunStore.open({ folder })
  expect(store.reader.integrity()).toEqual([])
})

test('an abort during opening leaves a complete run complete', async () => {
  using root = temporaryFolder()
  const folder = join(root.path, 'run')
  {
    await using store = await RunStore.open({ folder, create: newRun() })
    await store.finish('complete')
  }
  const controller = new AbortController()
  const opening = RunStore.open({ folder, signal: controller.signal })
  // Whoever looks for a run to continue sees meanwhile that this one is taken.
  expect(readRunFile(folder)).toMatchObject({ state: 'running' })
  controller.abort(new Error('changed my mind'))
  await expect(opening).rejects.toThrow('changed my mind')
  expect(readRunFile(folder)).toMatchObject({ state: 'complete', launches: [{}] })
})

test('a failed opening releases the lock', async () => {
  using root = temporaryFolder()
  const folder = join(root.path, 'run')
  mkdirSync(folder)
  writeFileSync(join(folder, runFiles.database), 'this is no database'.repeat(1000))
  await expect(RunStore.open({ folder, create: newRun() })).rejects.toMatchObject({
    code: 'store_failed',
    message: expect.stringContaining(folder),
  })
  expect(RunLock.isHeld(folder)).toBe(false)
})

test('another configuration, a missing run and a folder that is not a run are refused', async () => {
  using root = temporaryFolder()
  const folder = join(root.path, 'run')
  await expect(RunStore.open({ folder })).rejects.toMatchObject({ code: 'run_not_found' })
  await (await RunStore.open({ folder, create: newRun() })).close()
  await expect(RunStore.open({ folder, create: newRun({ configDigest: 'other' }) })).rejects.toMatchObject({
    code: 'run_mismatch',
  })
  const foreign = join(root.path, 'thesis')
  mkdirSync(foreign)
  writeFileSync(join(foreign, 'chapter-1.txt'), 'years of work')
  await expect(RunStore.open({ folder: foreign, create: newRun() })).rejects.toMatchObject({
    code: 'folder_unwritable',
    message: expect.stringContaining('chapter-1.txt'),
  })
  const below = join(root.path, 'thesis', 'chapter-1.txt', 'run')
  await expect(RunStore.open({ folder: below, create: newRun() })).rejects.toMatchObject({ code: 'folder_unwritable' })
})

test('a thread with its own port writes at the same time as this one', async () => {
  using root = temporaryFolder()
  await using store = await RunStore.open({ folder: join(root.path, 'run'), create: newRun() })
  const port = store.connect()
  const worker = new Worker(new URL('../../test/support/store/appending-thread.ts', import.meta.url), {
    workerData: { port, from: 100, to: 200 },
    transferList: [port],
  })
  const ended = once(worker, 'exit')
  for (let task = 0; task < 100; task += 1) {
    appendRollouts(store.journal, [task])
    if (task % 10 === 0) await store.journal.durable()
  }
  await store.journal.durable()
  expect(await ended).toEqual([0])
  expect(store.reader.counts()).toMatchObject({ ended: 200, tasks: 200, nodes: 400 })
  expect(store.reader.integrity()).toEqual([])
})

test('a failing store reports the error once, keeps acknowledged entries, and closes', async () => {
  using root = temporaryFolder()
  const folder = join(root.path, 'run')
  {
    await using store = await RunStore.open({ folder, create: newRun() })
    appendRollouts(store.journal, [1])
    await store.journal.durable()
    const failed = once(store.failure, 'abort')
    // A blob cannot be kept where its folder should be.
    writeFileSync(join(folder, runFiles.blobs), '')
    appendRollouts(store.journal, [2], { messages: ['z'.repeat(100_000)] })
    const durable = store.journal.durable()
    await expect(durable).rejects.toMatchObject({
      code: 'store_failed',
      message: expect.stringContaining('run the same again'),
    })
    await failed
    await expect(store.journal.durable()).rejects.toMatchObject({ code: 'store_failed' })
    await expect(
      store.retryFailed({ outcomes: ['model_error'], reopened: [], wholeGroups: false }),
    ).rejects.toMatchObject({
      code: 'store_failed',
    })
    await expect(store.finish('complete')).rejects.toMatchObject({ code: 'store_failed' })
    await store.finish('unfinished', { end: 'failed' })
    expect(store.reader.counts().ended).toBe(1)
  }
  expect(readRunFile(folder)).toMatchObject({ state: 'unfinished', launches: [{ end: 'failed' }] })
  using reader = RunReader.open(folder)
  expect(reader.integrity()).toEqual([])
  expect(reader.counts().ended).toBe(1)
})

test('failed rollouts can be reopened and run again; their attempts stay', async () => {
  using root = temporaryFolder()
  const folder = join(root.path, 'run')
  {
    await using store = await RunStore.open({ folder, create: newRun() })
    appendRollouts(store.journal, [1, 3])
    appendRollouts(store.journal, [2], { outcome: 'model_error' })
    appendRollouts(store.journal, [4], { outcome: 'env_error' })
    expect(await store.retryFailed({ outcomes: [], reopened: [], wholeGroups: false })).toBe(0)
    expect(
      await store.retryFailed({ outcomes: ['model_error', 'worker_lost'], reopened: [], wholeGroups: false }),
    ).toBe(1)
    expect(await store.retryFailed({ outcomes: ['model_error'], reopened: [], wholeGroups: false })).toBe(0)
    const ids = readFileSync(join(folder, runFiles.lines), 'utf8').match(/"id":"[^"]+"/g)
    expect(ids).toEqual(['"id":"1-0"', '"id":"3-0"', '"id":"4-0"'])
    expect([...store.reader.unfinished()]).toEqual([
      { rollout: '2-0', attempt: 1, task: 2, sample: 0, state: 'discarded' },
    ])
    expect(store.reader.attempts('2-0')).toMatchObject([{ discarded: true, end: { outcome: 'model_error' } }])
    appendRollouts(store.journal, [2], { attempt: 2 })
  }
  await using store = await RunStore.open({ folder })
  expect(store.reader.rollout('2-0')).toMatchObject({ outcome: 'completed', attempt: 2 })
  expect([...store.reader.unfinished()]).toEqual([])
  expect(store.reader.attempts('2-0')).toHaveLength(2)
  expect(store.reader.integrity()).toEqual([])
})
