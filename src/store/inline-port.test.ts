import { cpSync, existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test, vi } from 'vitest'
import { encodeFrame } from './_frame-codec.ts'
import { SpoolFile } from './_spool-file.ts'
import { runFiles } from './run-folder.ts'
import { RunStore } from './run-store.ts'
import { newRun, rolloutEntries, temporaryFolder } from '../../test/store/_fixtures.ts'
import { appendRollouts, breakDatabase, endedIn, mendDatabase } from '../../test/store/_stored-rollouts.ts'

/** A run with one rollout at a time. */
async function loneRun() {
  const root = temporaryFolder()
  const store = await RunStore.open({ folder: join(root.path, 'run'), create: newRun(), isLone: true })
  return {
    store,
    folder: store.folder,
    journal: store.journal,
    ended: () => store.reader.counts().ended,
    /** What a process leaves that is killed now. */
    leave: (name: string) => {
      const copy = join(root.path, name)
      cpSync(store.folder, copy, { recursive: true })
      return copy
    },
    [Symbol.asyncDispose]: async () => {
      await store.close()
      root[Symbol.dispose]()
    },
  }
}

test('what is synced is found when the run is opened again, though the database has it only later', async () => {
  await using run = await loneRun()
  appendRollouts(run.journal, [1])
  await run.journal.durable()
  appendRollouts(run.journal, [2])
  await run.journal.synced()
  appendRollouts(run.journal, [3, 4])
  await run.journal.syncedSoon()
  expect(run.journal.synced(), 'all is').toBeUndefined()
  const [read, continued] = [run.leave('read'), run.leave('continued')]
  expect(endedIn(read)).toBe(4)
  await using store = await RunStore.open({ folder: continued, isLone: true })
  appendRollouts(store.journal, [5])
  await store.journal.durable()
  expect(store.reader.counts().ended).toBe(5)
  expect(store.reader.integrity()).toEqual([])
})

test('a run whose spool is damaged goes on from there: no result that is taken in lacks a message', async () => {
  await using run = await loneRun()
  const frames = [1, 2, 3].flatMap((task) => rolloutEntries(task)).map((entry) => encodeFrame([entry]))
  for (const damaged of frames.keys()) {
    const left = run.leave(`left-${damaged}`)
    const spool = new SpoolFile(left)
    for (const [index, bytes] of frames.entries()) spool.append({ number: index + 1, bytes })
    spool.close()
    const path = join(left, runFiles.spool)
    const file = readFileSync(path)
    const begin = file.indexOf(frames[damaged] ?? '')
    file.fill(0, begin, begin + 8)
    writeFileSync(path, file)
    // Each rollout has a third of the frames, and its result is in the last of them.
    expect(endedIn(left), `without frame ${damaged}`).toBe(Math.floor((3 * damaged) / frames.length))
  }
})

test('the database has it as soon as somebody needs that, and else a little later by itself', async () => {
  await using run = await loneRun()
  appendRollouts(run.journal, [1])
  await run.journal.synced()
  expect(run.ended()).toBe(0)
  await run.journal.durable()
  expect(run.ended()).toBe(1)
  appendRollouts(run.journal, [2])
  await run.journal.synced()
  expect(run.ended()).toBe(1)
  await expect.poll(run.ended).toBe(2)
})

test('many batches share a commit, and a run that is left at any of them lacks none', async () => {
  await using run = await loneRun()
  for (let task = 0; task < 200; task += 1) {
    appendRollouts(run.journal, [task])
    await run.journal.synced()
    if (task % 23 === 0) expect(endedIn(run.leave(`left-${task}`))).toBe(task + 1)
  }
  await run.journal.durable()
  expect(run.ended()).toBe(200)
  const { commits } = run.store.status()
  expect(commits).toBeGreaterThanOrEqual(3)
  expect(commits).toBeLessThan(100)
})

test('what is large goes to the database at once, after what came before it', async () => {
  await using run = await loneRun()
  appendRollouts(run.journal, [1])
  await run.journal.synced()
  run.journal.appendAll(rolloutEntries(2, { messages: ['x'.repeat(2_000_000)] }))
  await run.journal.synced()
  expect(Array.from(run.store.reader.ended(), ({ rollout }) => rollout)).toEqual(['1-0', '2-0'])
  expect(endedIn(run.leave('left'))).toBe(2)
})

test('what the spool cannot take goes to the database, and only once', async () => {
  await using run = await loneRun()
  // The disk takes the frame and does not sync it: no machine here has such a disk.
  using sync = vi.spyOn(SpoolFile.prototype, 'sync').mockImplementationOnce(() => {
    throw new Error('EIO: i/o error, fdatasync')
  })
  appendRollouts(run.journal, [1])
  await run.journal.synced()
  expect(sync).toHaveBeenCalledOnce()
  expect(run.ended()).toBe(1)
  appendRollouts(run.journal, [2])
  await run.journal.synced()
  expect(run.ended()).toBe(1)
  expect(endedIn(run.leave('left'))).toBe(2)
})

test('a database that fails is told to everybody, and what is in the spool stays there', async () => {
  await using run = await loneRun()
  breakDatabase(run.folder)
  appendRollouts(run.journal, [1])
  await run.journal.synced()
  await expect(run.journal.durable()).rejects.toMatchObject({ code: 'store_failed' })
  expect(run.store.failure.reason).toMatchObject({ code: 'store_failed' })
  appendRollouts(run.journal, [2])
  await expect(run.journal.synced()).rejects.toMatchObject({ code: 'store_failed' })
  await run.store.close()
  mendDatabase(run.folder)
  expect(endedIn(run.folder)).toBe(1)
  expect(existsSync(join(run.folder, runFiles.spool))).toBe(false)
})

test('a database that fails while nobody waits ends the run as well', async () => {
  await using run = await loneRun()
  breakDatabase(run.folder)
  appendRollouts(run.journal, [1])
  await run.journal.synced()
  await expect.poll(() => run.store.failure.aborted).toBe(true)
})
