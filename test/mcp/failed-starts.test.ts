/** V1: a server that does not start leaves no process behind, and says why. */
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { Semaphore } from '../../src/kit/index.ts'
import { calling, sessionWith } from '../support/tools/session-with.ts'
import { McpSession } from '../../src/tools/mcp/session/mcp-session.ts'
import type { ServerConfig } from '../../src/tools/mcp/config/server-config.ts'
import { misbehaving, ServerLog } from '../fixtures/mcp/misbehaving.ts'
import { failureOf } from '../support/tools/failure-of.ts'
import { treePids, hidden, isRunning, liveDescendants, openDescriptors, survivors } from '../support/tools/processes.ts'
import { temporaryFolder } from '../support/tools/temporary-folder.ts'

/** Long enough for a process to start on a busy machine, so that it hangs where it is meant to. */
const startTimeoutMs = 2_000

const failing = [
  { modes: ['hang-initialize'], why: `did not initialise and list its tools within ${startTimeoutMs} ms` },
  { modes: ['initialize-error'], why: 'no licence for this machine' },
  { modes: ['exit-before-initialize'], why: 'exited with code 3' },
  { modes: ['list-hang'], why: `did not initialise and list its tools within ${startTimeoutMs} ms` },
  { modes: ['list-error'], why: 'the list is lost' },
  { modes: ['hang-initialize', 'ignore-eof', 'ignore-sigterm'], why: 'did not initialise' },
  { modes: ['list-hang', 'ignore-eof', 'ignore-sigterm', 'stdout-noise', 'stderr-noise'], why: 'did not initialise' },
]

const shell = (script: string): ServerConfig => ({ command: 'sh', args: ['-c', script] })

function sessionOn(config: ServerConfig): McpSession {
  return new McpSession({ name: 'mis', config, starts: new Semaphore(4), onEvent: () => {} })
}

test.concurrent.for(failing)('a failed start leaves no process: $modes', async ({ modes, why }) => {
  using log = new ServerLog()
  const session = sessionOn({ ...misbehaving(log.mode, ...modes), startTimeoutMs })
  const failed = session.open().then(
    () => undefined,
    // Looked at in the moment in which the rejection is delivered.
    (error: unknown) => ({ error, alive: survivors(log) }),
  )
  const outcome = await failed
  expect(outcome?.alive).toEqual([])
  expect(outcome?.error).toMatchObject({ code: 'tool_infra', rawMessage: expect.stringContaining(why) })
  expect(log.count('start')).toBe(1)
})

test.concurrent.for([
  { modes: ['hang-initialize'] },
  { modes: ['list-error'] },
  { modes: ['list-hang', 'ignore-eof', 'ignore-sigterm', 'hide-grandchild'] },
])('child processes of a server end with it when it fails to open: $modes', async ({ modes }) => {
  using log = new ServerLog()
  const session = sessionOn({ ...misbehaving(log.mode, 'fork-grandchild', ...modes), startTimeoutMs })
  await failureOf(session.open())
  expect(treePids(log)).toHaveLength(3)
  expect(treePids(log).filter(isRunning)).toEqual([])
})

test.concurrent('child processes end with a stubborn server, also behind a shell', async () => {
  using log = new ServerLog()
  const { command, args } = misbehaving(log.mode, 'ignore-eof', 'fork-grandchild')
  const session = sessionOn({ command: 'sh', args: ['-c', '"$@"; true', 'sh', command, ...args] })
  await session.open()
  // The shell, the server and its two.
  expect(survivors(log)).toHaveLength(4)
  await session.close()
  expect(survivors(log)).toEqual([])
})

test.concurrent('a child process with another group and environment ends with its server', async () => {
  await using folder = await temporaryFolder()
  const error = await failureOf(sessionOn(shell(hidden(folder.path, 'kill -9 $$'))).open())
  expect(error.data).toMatchObject({ signal: 'SIGKILL' })
  const pid = Number(await readFile(join(folder.path, 'pid'), 'utf8'))
  expect(pid).toBeGreaterThan(0)
  expect(isRunning(pid)).toBe(false)
})

test('two hundred failed starts leave no process and no descriptor', async () => {
  const nodes = ['initialize-error', 'exit-before-initialize', 'list-error']
  const configs: ServerConfig[] = [
    shell('exit 3'),
    shell('read request; exit 4'),
    shell('read request; echo "no JSON"; exec 1>&-; exec sleep 600'),
    shell('kill -9 $$'),
    { ...shell('exec sleep 600'), startTimeoutMs: 20 },
    { ...shell('setsid sleep 600 & sleep 600 & read request; exit 5'), startTimeoutMs: 5_000 },
    { command: 'no-such-command-anywhere' },
  ]
  const configOf = (index: number): ServerConfig =>
    index % 8 === 7
      ? misbehaving(nodes[Math.floor(index / 8) % nodes.length] ?? '')
      : (configs[index % 8] ?? shell('exit 1'))
  // What Node opens once and keeps is there before anything is counted.
  await failureOf(sessionOn(shell('exit 3')).open())
  const before = { descriptors: openDescriptors(), processes: liveDescendants() }
  const starts = new Semaphore(25)
  await Promise.all(
    Array.from({ length: 200 }, async (_, index) => {
      await starts.acquire()
      try {
        await failureOf(sessionOn(configOf(index)).open())
      } finally {
        starts.release()
      }
    }),
  )
  expect(liveDescendants()).toEqual(before.processes)
  const differenceNow = (): number => Math.abs(openDescriptors() - before.descriptors)
  await expect.poll(differenceNow).toBeLessThanOrEqual(3)
})

test('a session that failed to open is closed, and can be opened once the server works', async () => {
  using log = new ServerLog()
  await using made = sessionWith([log.mode, 'exit-before-initialize', 'until-start=3'])
  const { session } = made
  for (const _ of [1, 2]) {
    await failureOf(session.open())
    expect(session.state).toBe('closed')
    expect(survivors(log)).toEqual([])
  }
  expect((await session.open()).tools).not.toEqual([])
  expect(session.state).toBe('open')
  expect(await session.call(calling('echo'))).toMatchObject({ content: 'Echo: hi', detail: { generation: 1 } })
})

test('the error of a failed start has the exit code and only the end of stderr', async () => {
  const noisy = "yes 'a line of noise' | head -c 300000 >&2; echo 'the last word' >&2; exit 9"
  const error = await failureOf(sessionOn(shell(noisy)).open())
  expect(error.data).toMatchObject({ server: 'mis', exitCode: 9 })
  expect(error.data['stderr']).toMatch(/^a line of noise\n[^]*a line of noise\nthe last word\n$/)
  expect(String(error.data['stderr']).length).toBeLessThanOrEqual(8 * 1024)
  expect(error.rawMessage).toContain('exited with code 9; its stderr ended with: the last word')
})

test('the error of a failed start has the signal, or the stderr of a server that never answered', async () => {
  const killed = await failureOf(sessionOn(shell("echo 'about to die' >&2; kill -9 $$")).open())
  expect(killed.data).toMatchObject({ signal: 'SIGKILL', stderr: 'about to die\n' })
  expect(killed.data['exitCode'] ?? null).toBeNull()
  const hanging = sessionOn({ ...shell("echo 'waiting for a key' >&2; exec sleep 600"), startTimeoutMs: 500 })
  expect((await failureOf(hanging.open())).data).toMatchObject({ server: 'mis', stderr: 'waiting for a key\n' })
})
