import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readFileSync } from 'node:fs'
import { mkdtempDisposable, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test, vi } from 'vitest'
import { activeResources, leftSince } from '../../test/support/kit/active-resources.ts'
import { programEnvironment, Program } from './program.ts'
import { misbehaving, ServerLog } from '../../test/fixtures/mcp/misbehaving.ts'
import type { StdioServerConfig } from '../tools/mcp/config/server-config.ts'
import { isRunning } from '../../test/support/tools/processes.ts'

const start = (config: StdioServerConfig) => Program.start({ kind: 'server', name: 'files', config })
const shell = (script: string) => start({ command: 'sh', args: ['-c', script] })

test('input and output are connected until the server is closed', async () => {
  const before = activeResources()
  const server = await start({ command: 'cat' })
  server.stdin.write('hello\n')
  expect(String((await once(server.stdout, 'data'))[0])).toBe('hello\n')
  expect(server.failure).toBeUndefined()
  await Promise.all([server.close(), server.close(), server[Symbol.asyncDispose]()])
  expect(server.exit).toEqual({ code: 0, signal: null })
  expect(isRunning(server.pid)).toBe(false)
  expect(await leftSince(before)).toEqual([])
})

test('a server has its own variables and none of our secrets', async () => {
  vi.stubEnv('SECRET', 'ours')
  await using server = await start({ command: 'env', env: { TOKEN: 'its own' } })
  const chunks = await server.stdout.toArray()
  const environment = Buffer.concat(chunks).toString()
  expect(environment).toContain('TOKEN=its own')
  expect(environment).toContain('PATH=')
  expect(environment).not.toContain('SECRET')
  vi.unstubAllEnvs()
})

test('a bash server reads no start-up file whose output would mix with the messages', async () => {
  await using home = await mkdtempDisposable(join(tmpdir(), 'millrace-home-'))
  await writeFile(join(home.path, '.bashrc'), 'echo welcome\n')
  await using server = await start({ command: 'bash', args: ['-c', 'echo hello'], env: { HOME: home.path } })
  expect(Buffer.concat(await server.stdout.toArray()).toString()).toBe('hello\n')
})

test('a process that exits reports its exit code and the end of its stderr', async () => {
  await using server = await shell('yes noise | head -n 100000 >&2; echo cannot go on >&2; exit 3')
  expect(await server.ended).toEqual({ code: 3, signal: null })
  expect(server.stderr.length).toBeLessThanOrEqual(8_192)
  expect(server.stderr).toMatch(/^noise\n(noise\n)+cannot go on\n$/)
  expect(server.failure).toMatchObject({
    code: 'tool_infra',
    rawMessage: "server 'files' exited with code 3; its stderr ended with: cannot go on",
    data: { server: 'files', exitCode: 3, signal: null },
  })
})

test('a process ended by a Node error reports the error, not the Node version', async () => {
  await using server = await start({ command: process.execPath, args: ['-e', 'require("./not-there.cjs")'] })
  await server.ended
  expect(server.failure?.rawMessage).toBe(
    "server 'files' exited with code 1; its stderr ended with: Error: Cannot find module './not-there.cjs'",
  )
})

test('a killed process reports the signal', async () => {
  await using server = await shell('kill -9 $$')
  expect(await server.ended).toEqual({ code: null, signal: 'SIGKILL' })
  expect(server.failure?.rawMessage).toBe("server 'files' was killed by SIGKILL")
})

test('processes left behind by a server are killed, also outside its group', async () => {
  using log = new ServerLog()
  await using server = await start(misbehaving(log.mode, 'fork-grandchild'))
  await expect.poll(() => log.count('grandchild')).toBe(2)
  const grandchildren = log.entries('grandchild').map(({ detail }) => Number(detail))
  expect(grandchildren.every(isRunning)).toBe(true)
  process.kill(server.pid, 'SIGKILL')
  await server.ended
  expect(grandchildren.filter(isRunning)).toEqual([])
})

test('a command that does not exist is named in the error', async () => {
  await using server = await start({ command: 'no-such-command' })
  await server.ended
  expect(server.failure?.rawMessage).toBe(
    `there is no command 'no-such-command' to start server 'files': install it, or correct "command"`,
  )
})

test('a command that cannot be executed is named in the error', async () => {
  await using server = await start({ command: '/etc/passwd' })
  await server.ended
  expect(server.failure?.rawMessage).toContain("the command '/etc/passwd' of server 'files' cannot be executed")
})

test('exit code 127 of the server itself is not taken for a missing command', async () => {
  await using server = await shell('echo plugin not found >&2; exit 127')
  await server.ended
  expect(server.failure?.rawMessage).toContain('exited with code 127; its stderr ended with: plugin not found')
})

test('a working folder that does not exist is named in the error', async () => {
  await expect(start({ command: 'cat', cwd: '/no/such/folder' })).rejects.toMatchObject({
    code: 'tool_infra',
    rawMessage: `server 'files' could not be started: its folder /no/such/folder does not exist: correct "cwd"`,
  })
})

test('an argument with a NUL character is refused', async () => {
  await expect(start({ command: 'cat', args: ['a\0b'] })).rejects.toMatchObject({ code: 'tool_infra' })
})

test('writing to an ended process fails only for the writer', async () => {
  await using server = await shell('exec 0<&-; echo deaf; sleep 60')
  await once(server.stdout, 'data')
  const error = await new Promise((resolve) => server.stdin.write('x'.repeat(1_000_000), resolve))
  expect(error).toMatchObject({ code: 'EPIPE' })
  process.kill(server.pid, 'SIGKILL')
  await server.ended
})

test('closing a server reads a number of files that does not grow with the process count', async () => {
  const count = 150
  // They are there, in a group of their own, until their input ends.
  await using crowd = await shell(`for one in $(seq ${count}); do sleep 600 & done; echo ready; read line`)
  await once(crowd.stdout, 'data')
  const server = await start({ command: 'cat' })
  const before = readCalls()
  await server.close()
  expect(readCalls() - before).toBeLessThan(count)
})

/** How many reads this process has made so far. */
function readCalls(): number {
  return Number(/^syscr: (\d+)/m.exec(readFileSync('/proc/self/io', 'utf8'))?.[1])
}

test('a server gets the variables it needs to run, and none of our secrets', () => {
  vi.stubEnv('OPENAI_API_KEY', 'secret')
  vi.stubEnv('LC_TIME', 'de_DE')
  const environment = programEnvironment({ TOKEN: 'its own', HOME: '/srv' })
  expect(environment).toMatchObject({ PATH: process.env['PATH'], LC_TIME: 'de_DE', TOKEN: 'its own', HOME: '/srv' })
  expect(environment).not.toHaveProperty('OPENAI_API_KEY')
  vi.unstubAllEnvs()
})

test('a program works in a folder of its own, which ends with it, as do its temporary files', async () => {
  const line = 'mkdir -p a/b; echo kept >a/b/c; echo also >$TMPDIR/d; echo "$(ls -A) $PWD $TMPDIR"; cat'
  const program = await Program.start({ kind: 'program', name: 'sh', config: { command: 'sh', args: ['-c', line] } })
  const said = String((await once(program.stdout, 'data'))[0]).trim()
  const [files, ...folders] = said.split(' ')
  expect([files, folders.map(existsSync)]).toEqual(['a', [true, true]])
  program.stdin.end()
  // A guard that has forgotten it would leave the folder there.
  await program.ended
  expect(folders.map(existsSync)).toEqual([false, false])
  await program.close()
  expect(program.failure).toMatchObject({ code: 'agent_failed', rawMessage: "program 'sh' exited with code 0" })
})

/** Another process that starts programs. Not as root, whom no file keeps from anything. */
function startHost(script: string, source: string) {
  const whole = `
    import { Program } from ${JSON.stringify(import.meta.resolve('./program.ts'))}
    const config = { command: 'sh', args: ['-c', ${JSON.stringify(script)}] }
    const program = await Program.start({ kind: 'program', name: 'sh', config })
    ${source}`
  return spawn(process.execPath, ['--input-type=module', '-e', whole], {
    stdio: ['ignore', 'pipe', 'inherit'],
    ...(process.getuid?.() === 0 && { uid: 65_534, gid: 65_534 }),
  })
}

const writeProtected = 'mkdir -p a/b; echo kept >a/b/c; chmod -R a-w a; pwd;'

test.each([
  ['is removed although this process was killed', 'mkdir a; pwd; sleep 600 & wait'],
  ['is removed by the guard, too, if it is write-protected', `${writeProtected} sleep 600 & wait`],
])('the folder of a program %s', async (_, script) => {
  const host = startHost(script, 'program.stdout.pipe(process.stdout)')
  const folder = String((await once(host.stdout, 'data'))[0]).trim()
  expect(existsSync(join(folder, 'a'))).toBe(true)
  host.kill('SIGKILL')
  await expect.poll(() => existsSync(folder)).toBe(false)
})

test('a folder that is write-protected is removed', async () => {
  const host = startHost(
    writeProtected,
    'program.stdout.pipe(process.stdout); await program.ended; await program.close()',
  )
  const [said, [code]] = await Promise.all([host.stdout.toArray(), once(host, 'close')])
  expect(code).toBe(0)
  const folder = Buffer.concat(said).toString().trim()
  expect(folder).toMatch(/millrace-/)
  expect(existsSync(folder)).toBe(false)
})
