/** How servers are closed that do not want to be, and what is left after many. */
import { expect, test } from 'vitest'
import { activeResources, leftSince } from '../support/kit/active-resources.ts'
import { Program } from '../../src/process/program.ts'
import { misbehaving, ServerLog } from '../fixtures/mcp/misbehaving.ts'
import { isRunning, liveDescendants, openDescriptors } from '../support/tools/processes.ts'

/** One that ends by itself is given all the time it needs, and the others no more than it takes to see that they do not. */
const graceMs = { willing: 10_000, unwilling: 100 }

async function startWith(log: ServerLog, ...modes: string[]) {
  const config = misbehaving(log.mode, ...modes)
  const closeGraceMs = modes.includes('ignore-eof') ? graceMs.unwilling : graceMs.willing
  const server = await Program.start({ kind: 'server', name: 'misbehaving', config, closeGraceMs })
  const grandchildren = modes.includes('fork-grandchild') ? 2 : 0
  // Its first answer shows that it is in its loop, and has set up to ignore what it ignores.
  server.stdin.write(`${JSON.stringify({ jsonrpc: '2.0', id: 0, method: 'ping' })}\n`)
  await new Promise((resolve) => server.stdout.once('data', resolve))
  const pids = log.entries('grandchild').map(({ detail }) => Number(detail))
  expect(pids).toHaveLength(grandchildren)
  return { server, pids: [server.pid, ...pids] }
}

test('a server that exits when its input ends is not signalled', async () => {
  using log = new ServerLog()
  const { server } = await startWith(log)
  await server.close()
  expect(server.exit).toEqual({ code: 0, signal: null })
  expect(log.count('eof')).toBe(1)
})

test('a server that ignores the end of its input gets SIGTERM', async () => {
  using log = new ServerLog()
  const { server, pids } = await startWith(log, 'ignore-eof')
  await server.close()
  expect(log.count('eof')).toBe(1)
  expect(server.exit).toEqual({ code: null, signal: 'SIGTERM' })
  expect(pids.filter(isRunning)).toEqual([])
})

test('a server that ignores SIGTERM is killed with all its child processes', async () => {
  using log = new ServerLog()
  const { server, pids } = await startWith(log, 'ignore-eof', 'ignore-sigterm', 'fork-grandchild')
  await server.close()
  expect(log.count('sigterm')).toBe(1)
  expect(server.exit).toEqual({ code: null, signal: 'SIGKILL' })
  expect(pids).toHaveLength(3)
  expect(pids.filter(isRunning)).toEqual([])
})

test.each(['ok', 'hide-grandchild'])(
  'child processes that a server leaves behind at a normal exit are killed: %s',
  async (mode) => {
    using log = new ServerLog()
    const { server, pids } = await startWith(log, 'fork-grandchild', mode)
    await server.close()
    expect(server.exit).toEqual({ code: 0, signal: null })
    expect(pids.filter(isRunning)).toEqual([])
  },
)

test('close waits for the exit of a server that is already ending', async () => {
  using log = new ServerLog()
  const { server, pids } = await startWith(log, 'fork-grandchild')
  process.kill(server.pid, 'SIGKILL')
  await server.close()
  expect(server.exit).toEqual({ code: null, signal: 'SIGKILL' })
  expect(pids.filter(isRunning)).toEqual([])
  await server.close()
})

test('two hundred servers that crash, fail or are closed leave no process, descriptor or timer', async () => {
  const before = { resources: activeResources(), descriptors: openDescriptors(), processes: liveDescendants() }
  const endings = [
    { command: 'cat' },
    { command: 'sh', args: ['-c', 'exit 1'] },
    { command: 'sh', args: ['-c', 'setsid sleep 600 & kill -9 $$'] },
    { command: 'sh', args: ['-c', 'sleep 600 & read line'] },
    { command: 'no-such-command' },
  ]
  const openAndClose = async (index: number) => {
    const config = endings[index % endings.length] ?? { command: 'cat' }
    const server = await Program.start({ kind: 'server', name: 'many', config, closeGraceMs: graceMs.unwilling })
    if (config.command !== 'cat') await Promise.race([server.ended, new Promise(setImmediate)])
    await server.close()
  }
  for (let round = 0; round < 10; round += 1) {
    await Promise.all(Array.from({ length: 20 }, (_, index) => openAndClose(index)))
  }
  expect(liveDescendants()).toEqual(before.processes)
  await expect.poll(() => openDescriptors()).toBe(before.descriptors)
  expect(await leftSince(before.resources)).toEqual([])
})
