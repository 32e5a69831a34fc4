import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { expect, test } from 'vitest'
import { MillraceError } from '../errors/index.ts'
import type { NodeEntry } from './journal-entry.ts'
import { encodeFrame } from './_frame-codec.ts'
import { RunLock } from './_run-lock.ts'
import { SpoolFile } from './_spool-file.ts'
import { spoolDamaged } from './spool-damage.ts'
import { runFiles } from './run-folder.ts'
import { RunReader } from './run-reader.ts'
import { RunStore } from './run-store.ts'
import type { SessionStart } from './session-entry.ts'
import { newRun, nodeEntry, openFiles, rolloutEntries, temporaryFolder } from '../../test/store/_fixtures.ts'
import { appendRollouts, breakDatabase, endedIn, mendDatabase } from '../../test/store/_stored-rollouts.ts'

/** A spooled run, and a way to keep its writer from committing anything. */
async function spooledRun() {
  const root = temporaryFolder()
  const store = await RunStore.open({ folder: join(root.path, 'run'), create: newRun(), isSpooled: true })
  const blocker = new DatabaseSync(join(store.folder, runFiles.database))
  const countNodes = blocker.prepare('SELECT count(*) AS count FROM node')
  return {
    store,
    folder: store.folder,
    journal: store.journal,
    spool: join(store.folder, runFiles.spool),
    copy: join(root.path, 'copy'),
    /** How many nodes are in the database. Reading all of them to count them takes long where they are large. */
    nodes: () => Number(countNodes.get()?.['count']),
    block: () => blocker.exec('BEGIN IMMEDIATE'),
    unblock: () => blocker.exec('ROLLBACK'),
    [Symbol.asyncDispose]: async () => {
      blocker.close()
      await store.close()
      root[Symbol.dispose]()
    },
  }
}

const sessionStart = (number: number): SessionStart => ({
  kind: 'session-start',
  session: `ses_${number}`,
  group: 'g',
  tenant: 't',
  keyDigest: `key of ${number}`,
  at: number,
  data: '{}',
})

test('what is written is not in the database yet, and whoever opens what is left of the run finds it', async () => {
  await using run = await spooledRun()
  run.block()
  appendRollouts(run.journal, [1])
  await run.journal.written()
  appendRollouts(run.journal, [2, 3])
  await run.journal.written()
  expect(run.journal.written(), 'all is').toBeUndefined()
  expect(run.store.reader.counts().ended).toBe(0)
  for (const name of ['read', 'continued']) cpSync(run.folder, `${run.copy}-${name}`, { recursive: true })
  run.unblock()
  await run.journal.durable()
  expect(run.store.reader.counts().ended).toBe(3)

  expect(endedIn(`${run.copy}-read`)).toBe(3)
  await using continued = await RunStore.open({ folder: `${run.copy}-continued`, isSpooled: true })
  appendRollouts(continued.journal, [4])
  await continued.journal.durable()
  expect(continued.reader.counts().ended).toBe(4)
  expect(continued.reader.integrity()).toEqual([])
})

test('frames that are in the database are not taken in once more, and numbers go on from one sitting to the next', async () => {
  await using run = await spooledRun()
  appendRollouts(run.journal, [1])
  await run.journal.durable()
  appendRollouts(run.journal, [2])
  await run.journal.durable()
  // As if it was killed now, twice: the spool holds both.
  cpSync(run.folder, run.copy, { recursive: true })
  const spool = join(run.copy, runFiles.spool)
  cpSync(spool, `${run.copy}.spool`)
  for (let task = 3; task < 6; task += 1) {
    await using store = await RunStore.open({ folder: run.copy, isSpooled: true })
    appendRollouts(store.journal, [task])
    await store.journal.written()
    await store.close()
    cpSync(`${run.copy}.spool`, spool)
    expect(endedIn(run.copy)).toBe(task)
  }
})

test('a damaged frame in the middle of the spool is recorded, and those after it are taken in', async () => {
  await using run = await spooledRun()
  run.block()
  const ends: number[] = []
  for (const task of [1, 2, 3, 4]) {
    run.journal.append(sessionStart(task))
    await run.journal.written()
    ends.push(statSync(run.spool).size)
  }
  cpSync(run.folder, run.copy, { recursive: true })
  run.unblock()
  const copied = join(run.copy, runFiles.spool)
  const bytes = readFileSync(copied)
  bytes.fill(0, (ends[0] ?? 0) + 5, (ends[0] ?? 0) + 50)
  writeFileSync(copied, bytes)
  {
    using reader = RunReader.open(run.copy)
    expect(Array.from(reader.sessions.each({}), ({ id }) => id)).toEqual(['ses_1', 'ses_3', 'ses_4'])
    expect(Array.from(reader.events(spoolDamaged), ({ data }) => data)).toEqual([{ lost: 1, takenIn: 3 }])
    expect(reader.integrity()).toEqual(['frames of a spool that were lost, with what was said in them: 1'])
  }
  await using continued = await RunStore.open({ folder: run.copy, isSpooled: true })
  continued.journal.append(sessionStart(5))
  await continued.journal.durable()
  expect(continued.reader.sessions.counts()).toEqual({ open: 4, ended: 0 })
})

test('a reader leaves the spool of a run alone that somebody works on', async () => {
  await using run = await spooledRun()
  run.block()
  appendRollouts(run.journal, [1])
  await run.journal.written()
  expect(endedIn(run.folder)).toBe(0)
  expect(existsSync(run.spool)).toBe(true)
  run.unblock()
})

test('what nobody waits for is written and committed by itself', async () => {
  await using run = await spooledRun()
  appendRollouts(run.journal, [1])
  await expect.poll(() => run.store.reader.counts().ended).toBe(1)
  expect(statSync(run.spool).size).toBeGreaterThan(100)
})

test('many who wait share few commits', async () => {
  await using run = await spooledRun()
  const before = run.store.status().commits
  for (let task = 0; task < 200; task += 1) {
    appendRollouts(run.journal, [task])
    await run.journal.written()
  }
  await run.journal.durable()
  expect(run.store.reader.counts().ended).toBe(200)
  expect(run.store.status().commits - before).toBeLessThan(100)
})

test('a spool that is full is emptied first, and one who waits waits for that', async () => {
  await using run = await spooledRun()
  const message = JSON.stringify({ role: 'user', content: 'x'.repeat(900_000) })
  run.journal.appendAll(rolloutEntries(1).slice(0, 2))
  run.block()
  /** How many were in the database when each was written. */
  const committed: number[] = []
  const work = async (): Promise<void> => {
    for (let seq = 0; seq < 40; seq += 1) {
      run.journal.append(nodeEntry({ rollout: '1-0', seq, message }))
      await run.journal.written()
      committed.push(run.nodes())
    }
  }
  const worked = work()
  // More turns than are needed for all of them, if none waited.
  for (let turn = 0; turn < 100; turn += 1) await new Promise(setImmediate)
  expect(committed, 'the next one waits').toEqual(Array.from({ length: 18 }, () => 0))
  expect(statSync(run.spool).size).toBeLessThanOrEqual(16 * 1024 * 1024)
  run.unblock()
  await worked
  expect(committed[18]).toBeGreaterThanOrEqual(18)
  await run.journal.durable()
  expect(statSync(run.spool).size).toBeLessThanOrEqual(16 * 1024 * 1024)
  expect(run.store.reader.nodes('1-0', 1).map(({ seq }) => seq)).toEqual(Array.from({ length: 40 }, (_, seq) => seq))
})

test('what is large goes past the spool, and nothing is written before it is in the database', async () => {
  await using run = await spooledRun()
  run.block()
  appendRollouts(run.journal, [1])
  await run.journal.written()
  run.journal.appendAll(rolloutEntries(2, { messages: ['x'.repeat(5_000_000), 'y'] }))
  /** In the order they came about, each with what was in the database then. */
  const seen: [string, number][] = []
  const see = (what: string) => () => void seen.push([what, run.store.reader.counts().ended])
  const large = run.journal.written()?.then(see('large'))
  await new Promise(setImmediate)
  expect(run.journal.written(), 'with nothing new').toBeDefined()
  appendRollouts(run.journal, [3])
  const next = run.journal.written()?.then(see('next'))
  const durable = run.journal.durable()?.then(see('durable'))
  // More turns than a frame takes that is spooled.
  for (let turn = 0; turn < 10; turn += 1) await new Promise(setImmediate)
  expect(seen).toEqual([])
  cpSync(run.folder, run.copy, { recursive: true })
  expect(endedIn(run.copy)).toBe(1)
  run.unblock()
  await Promise.all([large, next, durable])
  expect(seen).toEqual([
    ['large', 2],
    ['next', 2],
    ['durable', 3],
  ])
})

test('closing brings all of it into the database and leaves no spool', async () => {
  await using run = await spooledRun()
  appendRollouts(run.journal, [1])
  await run.journal.written()
  appendRollouts(run.journal, [2])
  await run.store.close()
  appendRollouts(run.journal, [3])
  expect(existsSync(run.spool)).toBe(false)
  expect(endedIn(run.folder)).toBe(2)
  await expect(run.journal.written()).rejects.toMatchObject({ code: 'closed' })
})

test('a store that fails tells everybody, and what was written before stays in the spool', async () => {
  await using run = await spooledRun()
  breakDatabase(run.folder)
  appendRollouts(run.journal, [1])
  await run.journal.written()
  run.journal.appendAll(rolloutEntries(2, { messages: ['x'.repeat(5_000_000)] }))
  const written = run.journal.written()
  const durable = run.journal.durable()
  await expect(written).rejects.toMatchObject({ code: 'store_failed' })
  await expect(durable).rejects.toMatchObject({ code: 'store_failed' })
  await expect(run.journal.written()).rejects.toMatchObject({ code: 'store_failed' })
  expect(run.store.failure.reason).toBeInstanceOf(MillraceError)
  await run.store.close()
  mendDatabase(run.folder)
  expect(RunLock.isHeld(run.folder)).toBe(false)
  expect(endedIn(run.folder)).toBe(1)
  expect(existsSync(run.spool)).toBe(false)
})

test('a spool that is gone or cannot be read keeps nobody from the record', async () => {
  await using run = await spooledRun()
  appendRollouts(run.journal, [1])
  await run.journal.durable()
  cpSync(run.folder, run.copy, { recursive: true })
  const spool = join(run.copy, runFiles.spool)
  cpSync(join(run.folder, runFiles.run), spool)
  expect(endedIn(run.copy)).toBe(1)
  await expect(RunStore.open({ folder: run.copy })).rejects.toMatchObject({ code: 'store_failed' })
  writeFileSync(join(run.copy, runFiles.lock), 'no lock'.repeat(1000))
  expect(endedIn(run.copy)).toBe(1)
  rmSync(spool)
  expect(endedIn(run.copy)).toBe(1)
})

test('a spool alone is not a run', async () => {
  await using run = await spooledRun()
  appendRollouts(run.journal, [1])
  await run.journal.written()
  mkdirSync(run.copy)
  cpSync(run.spool, join(run.copy, runFiles.spool))
  expect(() => RunReader.open(run.copy)).toThrow(expect.objectContaining({ code: 'run_not_found' }))
  expect(readdirSync(run.copy)).toEqual([runFiles.spool])
})

test('what is held back counts as waiting for the disk', async () => {
  await using run = await spooledRun()
  run.block()
  run.journal.appendAll(rolloutEntries(1, { messages: ['x'.repeat(5_000_000)] }))
  const written = run.journal.written()
  await new Promise(setImmediate)
  const message = JSON.stringify({ role: 'user', content: 'y'.repeat(1_000_000) })
  for (let seq = 0; seq < 70; seq += 1) run.journal.append(nodeEntry({ rollout: '2-0', seq, message }))
  expect(run.journal.pressure).toBeGreaterThan(1)
  run.unblock()
  await written
  await run.journal.durable()
  expect(run.journal.pressure).toBe(0)
})

test('no text of an entry is too long for it, whichever it is', async () => {
  await using run = await spooledRun()
  const version = 'v'.repeat(17_000_000)
  run.journal.append({ ...nodeEntry({ rollout: '1-0', seq: 0 }), version } as NodeEntry)
  await run.journal.written()
  expect(run.store.reader.nodes('1-0', 1)).toHaveLength(1)
})

test('frames that do not follow on what is in the database are refused, and those who read do without them', async () => {
  await using run = await spooledRun()
  appendRollouts(run.journal, [1])
  await run.journal.durable()
  cpSync(run.folder, run.copy, { recursive: true })
  const path = join(run.copy, runFiles.spool)
  rmSync(path)
  const file = new SpoolFile(run.copy)
  file.append({ number: 3, bytes: encodeFrame(rolloutEntries(3)) })
  file.close()
  expect(endedIn(run.copy)).toBe(1)
  expect(openFiles(run.copy)).toEqual([])
  await expect(RunStore.open({ folder: run.copy })).rejects.toMatchObject({
    code: 'store_failed',
    message: expect.stringMatching(/does not have; restore both/),
  })
  expect(existsSync(path), 'it is kept').toBe(true)
  rmSync(path)
  await using continued = await RunStore.open({ folder: run.copy })
  expect(continued.reader.counts().ended).toBe(1)
})

test('closing during a pause brings in what was held back, and one who asks then waits for that', async () => {
  await using run = await spooledRun()
  run.block()
  appendRollouts(run.journal, [1])
  run.journal.appendAll(rolloutEntries(2, { messages: ['x'.repeat(5_000_000)] }))
  void run.journal.written()
  await new Promise(setImmediate)
  run.journal.appendAll(rolloutEntries(3, { messages: ['x'.repeat(5_000_000)] }))
  const closed = run.journal.close()
  const written = run.journal.written()?.then(() => run.store.reader.counts().ended)
  run.unblock()
  expect(await written).toBe(3)
  await closed
  expect(existsSync(run.spool)).toBe(false)
})
