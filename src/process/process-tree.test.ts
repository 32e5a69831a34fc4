import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { expect, test } from 'vitest'
import { descendantsOf, isAlive } from './process-tree.ts'
import { ProcessGuard } from './process-guard.ts'

const membersOf = (group: number) => new ProcessGuard().find({ group, tag: 'none' })

/** A shell with a child in its group and, in its turn, a child of that one in a session of its own. */
async function processTree() {
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

test('descendants are found in any process group', async () => {
  await using shell = await processTree()
  const found = descendantsOf(shell.pid)
  expect(found.every(isAlive)).toBe(true)
  // The last has left the group: it leads one.
  const last = found.at(-1)?.pid ?? 0
  await expect.poll(() => membersOf(last)).toEqual([last])
  expect(await membersOf(shell.pid)).toEqual([shell.pid, found[0]?.pid])
})

test('a process is told apart from a later one with the same pid', async () => {
  await using shell = await processTree()
  const [child = { pid: 0, startedAt: '' }] = descendantsOf(shell.pid)
  expect(isAlive(child)).toBe(true)
  expect(isAlive({ ...child, startedAt: '1' })).toBe(false)
})

test('an ended process has no members and no descendants', async () => {
  const shell = spawn('sh', ['-c', 'true'], { detached: true, stdio: 'ignore' })
  await once(shell, 'exit')
  const pid = shell.pid ?? 0
  expect(await membersOf(pid)).toEqual([])
  expect(descendantsOf(pid)).toEqual([])
})

test('a zombie does not count as alive, nor does its group', async () => {
  // Once the shell has become `sleep`, nobody collects its child, which ends only then.
  const child = `setsid sh -c 'until grep -q sleep /proc/$PPID/comm; do :; done'`
  const script = `${child} & echo $!; exec sleep 60`
  const parent = spawn('sh', ['-c', script], { stdio: ['ignore', 'pipe', 'ignore'] })
  const [line] = await once(parent.stdout, 'data')
  const zombie = Number(String(line))
  await expect.poll(() => membersOf(zombie)).toEqual([])
  expect(process.kill(zombie, 0)).toBe(true)
  const exited = once(parent, 'exit')
  parent.kill('SIGKILL')
  await exited
})
