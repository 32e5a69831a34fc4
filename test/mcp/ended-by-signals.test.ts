/** V2.2, V2.3 and V2.5: however `millrace eval` ends, no server outlives it. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { temporaryRuns } from 'millrace/testing'
import { test, vi } from 'vitest'
import { startMillrace } from '../support/cli/millrace-process.ts'
import { ServerLog } from '../fixtures/mcp/misbehaving.ts'
import { treePids, hidden, isRunning, liveDescendants, survivors } from '../support/tools/processes.ts'
import { temporaryFolder } from '../support/tools/temporary-folder.ts'

const stubborn = '--env.modes=ignore-eof,ignore-sigterm,fork-grandchild'
/** A command, its workers and their servers take a while to start on a busy machine. */
const patience = { timeout: 120_000 }

// Each is half a dozen processes.
vi.setConfig({ maxConcurrency: 3 })

/** `millrace eval` with two rollouts at a time, each of which holds a server. */
async function startHeld(log: ServerLog, module: string, ...words: readonly string[]) {
  const runs = await temporaryRuns()
  const environment = fileURLToPath(new URL(`../fixtures/mcp/${module}.ts`, import.meta.url))
  const common = ['-m', 'sim', '-c', '2', '--no-preflight', `--env.log=${log.path}`]
  const running = startMillrace({ cwd: runs.root }, 'eval', environment, ...common, ...words)
  // Before anybody else hears of it: what runs then has outlived it.
  const leftAtExit = once(running.process, 'exit').then(() => survivors(log))
  const pid = running.process.pid ?? 0
  return {
    running,
    pid,
    leftAtExit,
    /** Both rollouts are in the middle of a call. */
    async isHeld() {
      const ended = running.ended.then(({ stderr }) => Promise.reject(new Error(`it has ended: ${stderr}`)))
      await Promise.race([ended, vi.waitUntil(() => log.count('call') > 1, patience)])
    },
    /** The processes in which rollouts run. */
    hosts: () => {
      const written = `${log.path}.hosts`
      return existsSync(written) ? [...new Set(readFileSync(written, 'utf8').trim().split('\n').map(Number))] : []
    },
    async [Symbol.asyncDispose]() {
      await running[Symbol.asyncDispose]()
      await runs[Symbol.asyncDispose]()
    },
  }
}

test.concurrent.for([
  ['SIGINT', 130],
  ['SIGTERM', 143],
] as const)('%s: the servers end before the process exits with %i', async ([signal, code], { expect }) => {
  using log = new ServerLog()
  await using held = await startHeld(log, 'held', '--env.holdMs=400')
  await held.isHeld()
  expect(survivors(log, held.pid)).not.toEqual([])
  held.running.process.kill(signal)
  expect(await held.leftAtExit).toEqual([])
  const ended = await held.running.ended
  expect(ended.code, ended.stderr).toBe(code)
  expect(ended.stderr).toContain('Draining')
})

test.concurrent.for([
  ['on the main thread', []],
  ['in two workers', ['--workers', '2']],
] as const)('a second signal does not wait for servers that ignore signals: %s', async ([, where], { expect }) => {
  using log = new ServerLog()
  await using held = await startHeld(log, 'held', stubborn, ...where)
  await held.isHeld()
  held.running.process.kill('SIGINT')
  await held.running.shows('stderr', 'Draining')
  held.running.process.kill('SIGINT')
  expect(await held.leftAtExit).toEqual([])
  const ended = await held.running.ended
  expect(ended.code, ended.stderr).toBe(130)
  expect(treePids(log).length).toBeGreaterThanOrEqual(6)
})

test.concurrent('a third signal ends the process at once, and no server process is left', async ({ expect }) => {
  using log = new ServerLog()
  await using held = await startHeld(log, 'held', stubborn)
  await held.isHeld()
  held.running.process.kill('SIGTERM')
  await held.running.shows('stderr', 'Draining')
  held.running.process.kill('SIGTERM')
  await held.running.shows('stderr', 'Stopping')
  held.running.process.kill('SIGTERM')
  await held.running.ended
  expect(held.running.process.signalCode).toBe('SIGTERM')
  await expect.poll(() => survivors(log)).toEqual([])
})

test.concurrent.for([
  ['on the main thread', 'held', []],
  ['in two threads', 'held', ['--workers', '2']],
  ['in two processes', 'held-isolated', ['--workers', '2']],
] as const)('SIGKILL of the process ends all server processes, rollouts %s', async ([, module, where], { expect }) => {
  using log = new ServerLog()
  await using held = await startHeld(log, module, stubborn, ...where)
  await held.isHeld()
  const all = [...liveDescendants(held.pid).map(({ pid }) => pid), ...treePids(log)]
  expect(treePids(log).filter(isRunning).length).toBeGreaterThanOrEqual(6)
  held.running.process.kill('SIGKILL')
  await expect.poll(() => [...all.filter(isRunning), ...survivors(log)]).toEqual([])
})

test.concurrent('SIGKILL of one worker after another ends all processes of their servers', async ({ expect }) => {
  using log = new ServerLog()
  await using held = await startHeld(log, 'held-isolated', stubborn, '--workers', '2')
  await held.isHeld()
  // Its server, with one process in its group and one outside of it, and a guard.
  const isAtWork = (worker: number): boolean => liveDescendants(worker).length >= 4
  for (const _ of [1, 2, 3]) {
    // Both rollouts may be on the same one. Others take the place of those that were killed, with servers of their own.
    const worker = await vi.waitUntil(() => held.hosts().find(isAtWork), patience)
    const below = liveDescendants(worker).map(({ pid }) => pid)
    process.kill(worker, 'SIGKILL')
    await expect.poll(() => below.filter(isRunning)).toEqual([])
  }
  expect(isRunning(held.pid)).toBe(true)
  held.running.process.kill('SIGKILL')
  await expect.poll(() => survivors(log)).toEqual([])
})

test.concurrent('SIGKILL of the process ends a hidden server process whose server died with it', async ({ expect }) => {
  await using folder = await temporaryFolder()
  const config = { command: 'sh', args: ['-c', hidden(folder.path, 'wait')] }
  const source = `
    import { Program } from ${JSON.stringify(import.meta.resolve('../../src/process/program.ts'))}
    const { pid } = await Program.start({ kind: 'server', name: 'hiding', config: ${JSON.stringify(config)} })
    process.stdout.write(String(pid))
    setInterval(() => {}, 60_000)`
  const host = spawn(process.execPath, ['--input-type=module', '-e', source], { stdio: ['ignore', 'pipe', 'inherit'] })
  const [server] = (await once(host.stdout, 'data')) as [Buffer]
  const written = join(folder.path, 'pid')
  await expect.poll(() => existsSync(written), patience).toBe(true)
  const pid = Number(readFileSync(written, 'utf8'))
  expect(isRunning(pid)).toBe(true)
  // Stopped, it cannot see to anything itself when its server dies.
  host.kill('SIGSTOP')
  process.kill(Number(server), 'SIGKILL')
  await expect.poll(() => isRunning(Number(server))).toBe(false)
  host.kill('SIGKILL')
  await expect.poll(() => isRunning(pid)).toBe(false)
})

test.concurrent('an uncaught exception ends the servers before the process exits', async ({ expect }) => {
  using log = new ServerLog()
  await using held = await startHeld(log, 'held', stubborn, '-c', '4', '--env.stray=throws')
  expect(await held.leftAtExit).toEqual([])
  const ended = await held.running.ended
  expect(ended.code, ended.stderr).toBe(1)
  expect(ended.stderr).toContain('nobody catches this')
  expect(log.count('start')).toBeGreaterThan(0)
})

test.concurrent('after an unhandled rejection, the servers end before the process exits', async ({ expect }) => {
  using log = new ServerLog()
  const words = ['--env.count=4', '--env.holdMs=10', '--env.stray=rejects']
  await using held = await startHeld(log, 'held', ...words)
  expect(await held.leftAtExit).toEqual([])
  const ended = await held.running.ended
  expect(ended.code, ended.stderr).toBe(0)
  expect(ended.stderr).toContain('nobody waits for this')
  expect(log.count('start')).toBeGreaterThan(0)
})
