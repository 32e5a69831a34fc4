import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { expect, test } from 'vitest'
import { liveGuards } from '../../../../test/tools/_processes.ts'
import { ProcessGuard } from './process-guard.ts'

function deafGroup() {
  const child = spawn('sh', ['-c', 'trap "" TERM; exec sleep 60'], { detached: true, stdio: 'ignore' })
  const exited = once(child, 'exit')
  return {
    pid: child.pid ?? 0,
    exited,
    async [Symbol.asyncDispose]() {
      child.kill('SIGKILL')
      await exited
    },
  }
}

test('it comes with the first group and goes with the last', async () => {
  await using one = deafGroup()
  await using two = deafGroup()
  const guard = new ProcessGuard()
  expect(liveGuards()).toHaveLength(0)
  await Promise.all([guard.watch(one.pid), guard.watch(two.pid)])
  const shells = liveGuards()
  expect(shells).toHaveLength(1)
  await guard.forget(one.pid)
  expect(liveGuards()).toEqual(shells)
  await guard.forget(two.pid)
  expect(liveGuards()).toHaveLength(0)
  // What it was told to forget it has left alone, and it can start over.
  await guard.watch(one.pid)
  expect(liveGuards()).toHaveLength(1)
  await guard.forget(one.pid)
  await guard.forget(one.pid)
  expect(liveGuards()).toHaveLength(0)
  expect(process.kill(one.pid, 0)).toBe(true)
  expect(process.kill(two.pid, 0)).toBe(true)
})

test('a group that comes while the guard is dying is watched all the same', async () => {
  await using one = deafGroup()
  await using two = deafGroup()
  const guard = new ProcessGuard()
  await guard.watch(one.pid)
  const [first] = liveGuards()
  process.kill(first?.pid ?? Number.NaN, 'SIGKILL')
  await expect.poll(() => liveGuards()).not.toContainEqual(first)
  await guard.watch(two.pid)
  await guard.forget(one.pid)
  expect(liveGuards()).toHaveLength(1)
  await guard.forget(two.pid)
  expect(liveGuards()).toHaveLength(0)
})
