import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { expect, test } from 'vitest'
import { liveGuards } from '../../test/support/tools/processes.ts'
import { tagVariable, ProcessGuard } from './process-guard.ts'

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

test('the guard process starts with the first group and ends with the last', async () => {
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

test('a group added while the guard process dies is watched by a new one', async () => {
  await using one = deafGroup()
  await using two = deafGroup()
  const guard = new ProcessGuard()
  await guard.watch(one.pid)
  const [first] = liveGuards()
  process.kill(first?.pid ?? Number.NaN, 'SIGKILL')
  await expect.poll(() => liveGuards()).not.toContainEqual(first)
  await guard.watch(two.pid)
  await guard.forget(one.pid)
  // A process that is about to die has no name any more, and may still take a line.
  await expect.poll(() => liveGuards()).toHaveLength(1)
  await guard.forget(two.pid)
  expect(liveGuards()).toHaveLength(0)
})

test('it finds processes by tag, also if its shell dies, and ends when it watches nothing', async () => {
  const guard = new ProcessGuard()
  const tags = [guard.nextTag(), guard.nextTag()]
  const children = tags.map((tag) =>
    spawn('sleep', ['60'], { env: { ...process.env, [tagVariable]: tag }, stdio: 'ignore' }),
  )
  try {
    await Promise.all(children.map((child) => once(child, 'spawn')))
    // No group has this number.
    const looks = Promise.all([tags[0], ...tags].map((tag = '') => guard.find({ group: 2 ** 30, tag })))
    await expect.poll(() => liveGuards().length).toBeGreaterThan(0)
    for (const { pid } of liveGuards()) process.kill(pid, 'SIGKILL')
    const [one, other] = children.map(({ pid }) => pid)
    expect(await looks).toEqual([[one], [one], [other]])
    expect(liveGuards()).toHaveLength(0)
  } finally {
    for (const child of children) child.kill('SIGKILL')
  }
})
