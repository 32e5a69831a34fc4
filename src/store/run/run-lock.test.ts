import { once } from 'node:events'
import { existsSync, mkdirSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { RunLock } from './run-lock.ts'
import { runFiles } from './run-folder.ts'
import { RunReader } from '../read/run-reader.ts'
import { RunStore } from '../run-store.ts'
import { startChild } from '../../../test/support/store/child-process.ts'
import { newRun, temporaryFolder } from '../../../test/support/store/fixtures.ts'

test('a process can lock a run once, and again after it releases the lock', () => {
  using folder = temporaryFolder()
  {
    using _lock = RunLock.acquire(folder.path)
    expect(RunLock.isHeld(folder.path)).toBe(true)
    expect(() => RunLock.acquire(folder.path)).toThrow(
      expect.objectContaining({ code: 'run_in_use', data: expect.objectContaining({ pid: process.pid }) }),
    )
    // Looking and failing to get it must not have let it go.
    expect(RunLock.isHeld(folder.path)).toBe(true)
  }
  expect(RunLock.isHeld(folder.path)).toBe(false)
  expect(existsSync(join(folder.path, runFiles.lockOwner))).toBe(false)
  using _again = RunLock.acquire(folder.path)
  expect(readdirSync(folder.path).toSorted()).toEqual(['lock', 'lock.owner'])
})

test('releasing twice has no effect', () => {
  using folder = temporaryFolder()
  const lock = RunLock.acquire(folder.path)
  lock[Symbol.dispose]()
  using _next = RunLock.acquire(folder.path)
  lock[Symbol.dispose]()
  expect(RunLock.isHeld(folder.path)).toBe(true)
})

test('a folder without a lock file is not in use', () => {
  using folder = temporaryFolder()
  expect(RunLock.isHeld(folder.path)).toBe(false)
})

test('another process is refused by name, may read, and gets the lock after kill -9', async () => {
  using folder = temporaryFolder()
  const run = join(folder.path, 'run')
  await using child = startChild(new URL('../../../test/support/store/lock-holder.ts', import.meta.url), [run])
  await once(child.lines, 'line')
  expect(RunLock.isHeld(run)).toBe(true)
  await expect(RunStore.open({ folder: run, create: newRun() })).rejects.toMatchObject({
    code: 'run_in_use',
    message: expect.stringMatching(new RegExp(`process ${child.process.pid} .*wait for it or stop it`)),
  })
  {
    using reader = RunReader.open(run)
    expect(reader.counts().ended).toBe(0)
  }
  await child.kill()
  expect(RunLock.isHeld(run)).toBe(false)
  await using store = await RunStore.open({ folder: run })
  expect(store.run.launches).toHaveLength(2)
})

test('the error about a lock that cannot be opened names the folder', () => {
  using folder = temporaryFolder()
  mkdirSync(join(folder.path, runFiles.lock))
  expect(() => RunLock.requireFree(folder.path)).toThrow(`cannot write to ${folder.path}`)
  expect(() => RunLock.acquire(folder.path)).toThrow(`cannot write to ${folder.path}`)
})
