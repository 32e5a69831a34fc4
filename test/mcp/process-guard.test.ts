/** However we end, nothing that a server started outlives us. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { Worker } from 'node:worker_threads'
import { expect, test } from 'vitest'
import { ServerLog } from '../fixtures/mcp/misbehaving.ts'
import { isRunning, liveDescendants, liveGuards } from '../support/tools/processes.ts'

const host = fileURLToPath(new URL('../fixtures/mcp/server-host.ts', import.meta.url))
const stubborn = ['ignore-eof', 'ignore-sigterm', 'fork-grandchild']
const servers = 3

async function startHost(...given: string[]) {
  const child = spawn(process.execPath, [host, ...given], { stdio: ['pipe', 'pipe', 'ignore'] })
  await once(child.stdout, 'data')
  return {
    pid: child.pid ?? 0,
    kill: () => child.kill('SIGKILL'),
    /** Resolves when it has done what it was at. */
    async answers() {
      const answer = once(child.stdout, 'data')
      child.kill('SIGUSR2')
      await answer
    },
    write: () => child.stdin.write('end\n'),
    exited: once(child, 'exit'),
    async [Symbol.asyncDispose]() {
      child.kill('SIGKILL')
    },
  }
}

/** The servers and all they started, from what they wrote down. */
const treePids = (log: ServerLog): number[] => [
  ...log.entries('start').map(({ pid }) => pid),
  ...log.entries('grandchild').map(({ detail }) => Number(detail)),
]

async function runningTree(log: ServerLog): Promise<number[]> {
  await expect.poll(() => treePids(log).filter(isRunning)).toHaveLength(servers * 3)
  return treePids(log)
}

test('a killed process takes its stubborn servers and their child processes with it', async () => {
  using log = new ServerLog()
  await using parent = await startHost(String(servers), 'never', log.mode, ...stubborn)
  const pids = await runningTree(log)
  const guards = liveGuards(parent.pid)
  expect(guards).toHaveLength(1)
  parent.kill()
  await expect.poll(() => [...pids, ...guards.map(({ pid }) => pid)].filter(isRunning)).toEqual([])
})

test.each(['exit', 'throw'])('a process that exits by itself takes its servers with it: %s', async (end) => {
  using log = new ServerLog()
  await using parent = await startHost(String(servers), end, log.mode, ...stubborn)
  const pids = await runningTree(log)
  parent.write()
  await expect.poll(() => pids.filter(isRunning)).toEqual([])
})

test('a terminated thread takes its servers with it, while its process lives on', async () => {
  using log = new ServerLog()
  const before = liveDescendants()
  const thread = new Worker(host, { workerData: [String(servers), 'never', log.mode, ...stubborn] })
  await once(thread, 'message')
  const pids = await runningTree(log)
  await thread.terminate()
  await expect.poll(() => pids.filter(isRunning)).toEqual([])
  await expect.poll(() => liveDescendants()).toEqual(before)
})

test('a child process in another process group is killed although its server died first', async () => {
  using log = new ServerLog()
  await using parent = await startHost(String(servers), 'never', log.mode, ...stubborn)
  const pids = await runningTree(log)
  // Stopped, it cannot see to them itself.
  process.kill(parent.pid, 'SIGSTOP')
  for (const { pid } of log.entries('start')) process.kill(pid, 'SIGKILL')
  await expect.poll(() => log.entries('start').filter(({ pid }) => isRunning(pid))).toEqual([])
  parent.kill()
  await expect.poll(() => pids.filter(isRunning)).toEqual([])
})

test('a child process with another environment is found below its server', async () => {
  using log = new ServerLog()
  await using parent = await startHost(String(servers), 'never', log.mode, ...stubborn, 'hide-grandchild')
  const pids = await runningTree(log)
  parent.kill()
  await expect.poll(() => pids.filter(isRunning)).toEqual([])
})

test('a killed guard is replaced, and the new one knows the servers', async () => {
  using log = new ServerLog()
  await using parent = await startHost(String(servers), 'never', log.mode, ...stubborn)
  const pids = await runningTree(log)
  const [first] = liveGuards(parent.pid)
  process.kill(first?.pid ?? Number.NaN, 'SIGKILL')
  await expect.poll(() => liveGuards(parent.pid).filter(({ pid }) => pid !== first?.pid)).toHaveLength(1)
  // It is told of the servers in the same breath in which it is started.
  await parent.answers()
  expect(pids.filter(isRunning)).toEqual(pids)
  parent.kill()
  await expect.poll(() => pids.filter(isRunning)).toEqual([])
})

test('a guard ignores signals', async () => {
  using log = new ServerLog()
  await using parent = await startHost(String(servers), 'never', log.mode, ...stubborn)
  const pids = await runningTree(log)
  const [guard] = liveGuards(parent.pid)
  for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.kill(guard?.pid ?? Number.NaN, name)
  parent.kill()
  await expect.poll(() => pids.filter(isRunning)).toEqual([])
})

test('a server never runs if its parent dies before it is released', async () => {
  using log = new ServerLog()
  await using parent = await startHost('0', 'never', log.mode)
  const waiting = liveDescendants(parent.pid).filter(({ command }) => command.includes('millrace-gate'))
  expect(waiting).toHaveLength(1)
  parent.kill()
  await expect.poll(() => waiting.filter(({ pid }) => isRunning(pid))).toEqual([])
  expect(log.count('start')).toBe(0)
})

test('closed servers leave no guard, and the process can exit', async () => {
  using log = new ServerLog()
  await using parent = await startHost(String(servers), 'close', log.mode)
  expect(liveGuards(parent.pid)).toHaveLength(1)
  parent.write()
  expect(await parent.exited).toEqual([0, null])
})
