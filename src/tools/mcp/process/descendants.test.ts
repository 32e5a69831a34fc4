import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { expect, test } from 'vitest'
import { descendantsOf, identify, isAlive, isGroupAlive } from './_descendants.ts'

/** A shell with a child in its group and, in its turn, a child of that one in a session of its own. */
async function family() {
  const script = 'sh -c "setsid sleep 60 & echo; wait" & wait'
  const shell = spawn('sh', ['-c', script], { detached: true, stdio: ['ignore', 'pipe', 'ignore'] })
  const pid = shell.pid ?? 0
  await once(shell.stdout, 'data')
  await expect.poll(() => descendantsOf(pid)).toHaveLength(2)
  const exited = once(shell, 'exit')
  return {
    pid,
    async [Symbol.asyncDispose]() {
      const left = descendantsOf(pid)
      process.kill(-pid, 'SIGKILL')
      for (const descendant of left) if (isAlive(descendant)) process.kill(descendant.pid, 'SIGKILL')
      await exited
    },
  }
}

test('descendants are found in whatever group they are', async () => {
  await using shell = await family()
  const found = descendantsOf(shell.pid)
  expect(found.every(isAlive)).toBe(true)
  expect(isGroupAlive(shell.pid)).toBe(true)
  // The last has left the group: it leads one.
  await expect.poll(() => isGroupAlive(found.at(-1)?.pid ?? 0)).toBe(true)
})

test('a process is told from a later one of the same number', () => {
  const own = identify(process.pid)
  expect(own && isAlive(own)).toBe(true)
  expect(isAlive({ pid: process.pid, startedAt: '1' })).toBe(false)
})

test('of what is gone nothing is alive', async () => {
  const shell = spawn('sh', ['-c', 'true'], { detached: true, stdio: 'ignore' })
  await once(shell, 'exit')
  const pid = shell.pid ?? 0
  expect(identify(pid)).toBeUndefined()
  expect(isGroupAlive(pid)).toBe(false)
  expect(descendantsOf(pid)).toEqual([])
})

test('a zombie is not alive, nor is its group', async () => {
  // Once the shell has become `sleep`, nobody collects its child, which ends only then.
  const child = `setsid sh -c 'until grep -q sleep /proc/$PPID/comm; do :; done'`
  const script = `${child} & echo $!; exec sleep 60`
  const parent = spawn('sh', ['-c', script], { stdio: ['ignore', 'pipe', 'ignore'] })
  const [line] = await once(parent.stdout, 'data')
  const zombie = Number(String(line))
  await expect.poll(() => identify(zombie)).toBeUndefined()
  expect(process.kill(zombie, 0)).toBe(true)
  expect(isGroupAlive(zombie)).toBe(false)
  const exited = once(parent, 'exit')
  parent.kill('SIGKILL')
  await exited
})
