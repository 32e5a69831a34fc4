import { existsSync } from 'node:fs'
import { createServer, type RequestListener } from 'node:http'
import type { AddressInfo } from 'node:net'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { temporaryRuns } from 'millrace/testing'
import { describe, expect, it } from 'vitest'
import { loadEnvironment } from '../../src/env/index.ts'
import { HttpToolServer, ServedTools } from '../../src/serve/index.ts'
import { fakeProcess } from '../support/cli/fake-terminal.ts'
import { main } from '../../src/cli/main.ts'
import { HttpMcpServer } from '../support/tools/http-mcp-server.ts'
import { fixture, objects, startMillrace } from '../support/cli/millrace-process.ts'
import { chatty, everything, script, writeServers } from '../support/cli/tool-servers.ts'

/** The command, in this process: what it starts are processes enough. */
async function millrace({ cwd, env = {} }: { cwd: string; env?: Record<string, string> }, ...words: readonly string[]) {
  const parts = fakeProcess({ env })
  const code = await main(words, { ...parts, cwd })
  return { code, stdout: parts.stdout.text, stderr: parts.stderr.text }
}

/** What the doctor says of one server. */
async function examined(server: unknown, env: Record<string, string> = {}) {
  await using place = await temporaryRuns()
  const cwd = place.root
  await writeServers(cwd, { it: server })
  const { code, stdout, stderr } = await millrace({ cwd, env }, 'tools', 'doctor', 'servers.json')
  return { code, stderr, text: stdout.replaceAll(/\d+(\.\d+)?m?s\b/g, '#') }
}

async function listening(onRequest: RequestListener) {
  const server = createServer(onRequest).listen(0, '127.0.0.1')
  await new Promise((resolve) => server.once('listening', resolve))
  const { port } = server.address() as AddressInfo
  return {
    url: `http://127.0.0.1:${port}/mcp`,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

describe('millrace tools list', () => {
  it('shows all servers, including those that fail', async () => {
    await using place = await temporaryRuns()
    const cwd = place.root
    const gone = script('console.error("no licence"); process.exit(3)')
    await writeServers(cwd, { everything, chatty, gone: { ...gone, required: false } })
    const listed = await millrace({ cwd }, 'tools', 'list', 'servers.json')
    expect(listed).toMatchObject({ code: 0, stderr: '' })
    expect(listed.stdout).toMatch(/^everything +13 +[\d.]+m?s +stdio$/m)
    expect(listed.stdout).toMatch(/^chatty +2 +[\d.]+m?s +stdio$/m)
    expect(listed.stdout).toMatch(/^gone +– +[\d.]+m?s +stdio +failed$/m)
    expect(listed.stdout).toContain('\n  echo {"message": string}  Echoes back the input string\n')
    expect(listed.stdout).toContain('\n  nod {}\n')
  })

  it('fails if allow or deny names a tool that the server does not list', async () => {
    await using place = await temporaryRuns()
    const cwd = place.root
    await writeServers(cwd, { chatty: { ...chatty, deny: ['slep'] } })
    const listed = await millrace({ cwd }, 'tools', 'list', 'servers.json')
    expect(listed.code).toBe(2)
    expect(listed.stdout).toContain('"deny" names "slep", which the server does not list; did you mean "sleep"?')
  })

  it('exits with 1 if a server fails and with 2 if the configuration is wrong, also with --json', async () => {
    await using place = await temporaryRuns()
    const cwd = place.root
    await writeServers(cwd, { chatty, broken: { command: 'node', env: { KEY: '${NO_SUCH_VARIABLE}' } } })
    const listed = await millrace({ cwd }, 'tools', 'list', 'servers.json', '--json')
    expect(listed.code).toBe(2)
    expect(objects(listed.stdout)).toMatchObject([
      {
        servers: [
          {
            server: 'chatty',
            transport: 'stdio',
            tools: [{ name: 'nod', inputSchema: { type: 'object' } }, { name: 'sleep' }],
          },
          { server: 'broken', tools: [], error: expect.stringContaining('needs the variable NO_SUCH_VARIABLE') },
        ],
      },
    ])
    await writeServers(cwd, { chatty, broken: script('process.exit(3)') })
    const failing = await millrace({ cwd }, 'tools', 'list', 'servers.json')
    expect(failing.code).toBe(1)
    expect(failing.stdout).toContain('npx millrace tools doctor servers.json --server broken shows more')
    const one = await millrace({ cwd }, 'tools', 'list', 'servers.json', '--server', 'chatty')
    expect(one).toMatchObject({ code: 0 })
    expect(one.stdout).not.toContain('broken')
  })

  it('shows the tools of an environment', async () => {
    await using place = await temporaryRuns()
    const cwd = place.root
    for (const name of ['guess-number', 'environment:guess-number']) {
      const listed = await millrace({ cwd }, 'tools', 'list', name)
      expect(listed).toMatchObject({ code: 0, stderr: '' })
      expect(listed.stdout).toMatch(/^guess-number +1 +– +own$/m)
    }
  })

  it('reports wrong arguments and wrong files', async () => {
    await using place = await temporaryRuns()
    const cwd = place.root
    await writeFile(join(cwd, 'bad.json'), '{ "mcpServers": {\n  "it": { "command": "node", }\n} }')
    await writeFile(join(cwd, 'code.json'), JSON.stringify({ inputs: [], servers: { chatty } }))
    await writeFile(join(cwd, 'package.json'), JSON.stringify({ name: 'it', scripts: { start: 'node .' }, files: [] }))
    await writeServers(cwd, { chatty })
    const cases = [
      [['list', 'bad.json'], 2, /bad\.json is not JSON: .*line 2/],
      [['list', 'none.json'], 1, /cannot read none\.json; check the path/],
      [['list', 'servers.json', '--server', 'chaty'], 2, /has no server "chaty"; did you mean chatty\?/],
      [['list', 'servers.json', '--task', '1'], 2, /--task is for millrace tools call, serve, not for list/],
      [['lst', 'servers.json'], 2, /millrace tools has no "lst"; did you mean list\?/],
      [['list', 'servers.json', 'echo'], 2, /unexpected argument "echo"/],
      [['call', 'servers.json'], 2, /millrace tools call needs a tool/],
      [
        ['list', 'code.json'],
        2,
        /code\.json has its servers under "servers", as VS Code has them: rename it to "mcpServers"/,
      ],
      [['list', 'package.json'], 2, /package\.json has no "mcpServers": expected \{ "mcpServers": /],
      [['serve', 'servers.json'], 2, /millrace tools serve serves the tools of an environment/],
    ] as const
    for (const [words, code, message] of cases) {
      const ended = await millrace({ cwd }, 'tools', ...words)
      expect(ended).toMatchObject({ code, stdout: '' })
      expect(ended.stderr).toMatch(message)
    }
  })
})

describe('millrace tools call', () => {
  it('calls one tool and prints its answer', async () => {
    await using place = await temporaryRuns()
    const cwd = place.root
    await writeServers(cwd, { everything, chatty })
    const call = (...words: readonly string[]) => millrace({ cwd }, 'tools', 'call', 'servers.json', ...words)
    const echoed = await call('everything.echo', '{"message": "hello"}')
    expect(echoed).toMatchObject({ code: 0, stdout: 'Echo: hello\n' })
    expect(echoed.stderr).toMatch(/^everything\.echo: answered in /)
    expect(await call('echo', '--arg', 'message=5')).toMatchObject({ code: 0, stdout: 'Echo: 5\n' })
    const drawn = await call('get-tiny-image')
    expect(drawn.stdout).toMatch(/\[image image\/png, [\d.]+ kB\]/)
    const summed = await call('get-sum', '--arg', 'a=2', '--arg', 'b=3', '--json')
    expect(objects(summed.stdout)).toMatchObject([{ server: 'everything', tool: 'get-sum', isError: false }])
    const failed = await call('nod')
    expect(failed).toMatchObject({ code: 1, stdout: 'no\n' })
    expect(failed.stderr).toContain('the tool failed')
    expect(await call('eco')).toMatchObject({ code: 2, stderr: expect.stringContaining('did you mean echo') })
  })

  it('checks the arguments before it calls the server', async () => {
    await using place = await temporaryRuns()
    const cwd = place.root
    await writeServers(cwd, { everything })
    const called = await millrace({ cwd }, 'tools', 'call', 'servers.json', 'echo', '{"text": "hello"}')
    expect(called).toMatchObject({ code: 2, stdout: '' })
    expect(called.stderr).toContain('bad arguments for everything.echo: message: ')
    expect(called.stderr).toContain('Expected {"message": string}')
  })

  it('calls a tool of an environment on the given task', async () => {
    await using place = await temporaryRuns()
    const cwd = place.root
    const { code, stdout, stderr } = await millrace(
      { cwd },
      'tools',
      'call',
      'guess-number',
      'guess',
      '--arg',
      'number=0',
    )
    expect({ code, stderr: stderr.split(':')[0] }).toEqual({ code: 0, stderr: 'guess-number.guess' })
    expect(stdout).not.toBe('\n')
    const beyond = await millrace({ cwd }, 'tools', 'call', fixture('counting.ts'), 'add', '{}', '--task', '999999')
    expect(beyond.code).toBe(2)
  })

  it('ends the call and its server at Ctrl-C', async () => {
    await using place = await temporaryRuns()
    const cwd = place.root
    await writeServers(cwd, { chatty })
    await using running = startMillrace({ cwd }, 'tools', 'call', 'servers.json', 'sleep')
    await expect.poll(() => existsSync(join(cwd, 'called'))).toBe(true)
    running.process.kill('SIGINT')
    expect(await running.ended).toMatchObject({ code: 130, stdout: '' })
  })
})

describe('millrace tools doctor', () => {
  it('passes a working server through all steps', async () => {
    const { code, text } = await examined({ ...everything, sharing: 'shared' })
    expect(code).toBe(0)
    expect(text).toMatch(
      /✓ config .*index\.js\n +✓ open .*13 tools.*\n +✓ names .*models see echo, .* and 10 more tools/,
    )
    expect(text).toMatch(/sharing: shared: one process for all rollouts, [\d.]+ MB in total/)
    expect(text).toContain('fine: ready in # with 13 tools')
  })

  it('passes a working server over HTTP through all steps, and leaves no session there', async () => {
    const loaded = await loadEnvironment('guess-number')
    await using tools = await ServedTools.open(loaded, { env: {} })
    await using httpServer = await HttpToolServer.open({ tools, version: '1', port: 0, onFault: () => {} })
    const { code, text } = await examined({ url: httpServer.url })
    expect(code).toBe(0)
    expect(text).toMatch(/✓ config .*\/mcp\n +✓ open .*1 tool:/)
    expect(text).toContain('sharing: session: each rollout has a session of its own on the one server')
    expect(httpServer.sessions).toBe(0)
  })

  it('reports a server whose tools are all read-only', async () => {
    const { code, text } = await examined(chatty)
    expect(code).toBe(0)
    expect(text).toContain('all its tools are declared read-only, so "sharing": "shared" is likely right')
  })

  it.each([
    ['a command that is not there', { command: 'no-such-command' }, ['✗ open', 'install no-such-command', 'PATH is ']],
    [
      'a command with arguments in it',
      { command: 'node server.js' },
      ['✗ open', '"command": "node", "args": ["server.js"]'],
    ],
    [
      'a command with a path and arguments in it',
      { command: `${process.execPath} ./server.js` },
      ['✗ open', `"command": "${process.execPath}", "args": ["./server.js"]`],
    ],
    [
      'a path among the arguments in a command',
      { command: 'npx @example/server' },
      ['✗ open', '"command": "npx", "args": ["@example/server"]'],
    ],
    ['a path that is not there', { command: './server' }, ['✗ open', './server starts from']],
    [
      'a process that ends at once',
      script('console.error("no licence"); process.exit(3)'),
      ['✗ open', 'exit code 3', '    no licence', 'run its command by hand'],
    ],
    [
      'a variable that the server misses',
      script('console.error("set SEARCH_API_KEY"); process.exit(1)'),
      ['it may lack SEARCH_API_KEY', '"SEARCH_API_KEY": "${SEARCH_API_KEY}"'],
    ],
    [
      'a module that is not installed',
      { command: process.execPath, args: ['nowhere.js'] },
      ['a package of the server is not installed'],
    ],
    [
      'a process that says nothing',
      { ...script('process.stdin.resume()'), startTimeoutMs: 500 },
      ['✗ open', 'did not initialise and list its tools within 500 ms', 'it runs but does not answer'],
    ],
  ])('finds %s', async (_name, server, expected) => {
    const { code, text, stderr } = await examined(server, { EMPTY: '' })
    expect({ code, stderr }).toEqual({ code: 1, stderr: '' })
    for (const part of expected) expect(text).toContain(part)
    expect(text).toMatch(/fails at \w+; it is required, so millrace eval ends before anything is run \(exit code 1\)/)
    expect(text).toContain('with --no-preflight each rollout ends as tool_infra_error')
    expect(text).not.toContain('[tool_infra]')
  })

  it.each([
    [
      'a variable of ours that is empty',
      { command: 'node', env: { KEY: '${EMPTY}' } },
      ['✗ config', 'EMPTY is empty or not set: export it'],
    ],
    [
      'a field that is not known',
      { comand: 'node' },
      ['✗ config', 'it.comand: unknown field; did you mean "command"?'],
    ],
    ['a type that is not known', { ...chatty, type: 'stdo' }, ['✗ config', '"stdio" for a command, or "http"']],
    ['a tool that is not there', { ...chatty, allow: ['nodd'] }, ['✓ open', '✗ names', 'did you mean "nod"?']],
  ])('finds %s, which also keeps an evaluation from starting', async (_name, server, expected) => {
    for (const required of [true, false]) {
      const { code, text, stderr } = await examined({ ...server, required }, { EMPTY: '' })
      expect({ code, stderr }).toEqual({ code: 2, stderr: '' })
      for (const part of expected) expect(text).toContain(part)
      expect(text).toMatch(/fails at \w+; millrace eval refuses to start with such a configuration \(exit code 2\)/)
    }
  })

  it('finds two servers with tools of the same name', async () => {
    await using place = await temporaryRuns()
    const cwd = place.root
    const doctor = () => millrace({ cwd }, 'tools', 'doctor', 'servers.json', '--json')
    await writeServers(cwd, { one: chatty, other: chatty })
    const clashing = await doctor()
    expect(clashing.code).toBe(2)
    const [found] = objects(clashing.stdout)
    expect(found).toMatchObject({ healthy: ['one'], servers: [{}, { server: 'other', tools: { count: 2 } }] })
    expect(found).toHaveProperty('servers.1.steps.2', {
      step: 'names',
      ok: false,
      ms: expect.any(Number) as number,
      shown: expect.stringContaining('"one" and "other" both have a tool "nod": set "prefix"') as string,
      code: 'config_invalid',
    })
    await writeServers(cwd, { one: chatty, other: { ...chatty, prefix: 'other_' } })
    const told = await doctor()
    expect(told.code).toBe(0)
    expect(told.stdout).toContain('models see other_nod, other_sleep')
  })

  it('skips disabled servers, and says if there is no server to examine', async () => {
    await using place = await temporaryRuns()
    const cwd = place.root
    await writeServers(cwd, { off: { ...chatty, disabled: true } })
    const disabled = await millrace({ cwd }, 'tools', 'doctor', 'servers.json')
    expect(disabled).toMatchObject({
      code: 0,
      stdout: 'servers.json has no tool servers, so there is nothing to examine\n',
    })
    const { code, stdout } = await millrace({ cwd }, 'tools', 'doctor', 'guess-number')
    expect({ code, stdout }).toEqual({
      code: 0,
      stdout: 'guess-number has no tool servers, so there is nothing to examine\n',
    })
  })

  it('redacts the secrets given to a server', async () => {
    const server = script('console.error("bad key " + process.env.API_KEY + process.argv.at(-1)); process.exit(1)')
    const given = { ...server, args: [...server.args, 'key=${KEY}'], env: { API_KEY: '${KEY}' } }
    const { code, text } = await examined(given, { KEY: 'hunter2-hunter2' })
    expect(code).toBe(1)
    expect(text).toContain('key=${KEY}')
    expect(text).toContain('bad key [redacted]')
    expect(text).not.toContain('hunter2')
  })

  it.each([
    ['nobody at the port', 'off', 'no server answers at http://127.0.0.1:'],
    ['a key that is missing', 401, 'it requires authentication: give it "headers"'],
    ['another path', 404, 'Check the path in "url", which is often /mcp'],
    ['the older transport', 'sse', 'if it speaks the older transport, set "type": "sse"'],
    ['a web page', 'page', 'text/html'],
  ])('finds %s at a url', async (_name, kind, hint) => {
    await using server = await listening((request, response) => {
      if (typeof kind === 'number') response.writeHead(kind).end()
      else if (kind === 'page') response.writeHead(200, { 'content-type': 'text/html' }).end('<p>hello')
      else if (request.method === 'GET')
        response.writeHead(200, { 'content-type': 'text/event-stream' }).write(': hi\n\n')
      else response.writeHead(405).end()
    })
    const url = kind === 'off' ? 'http://127.0.0.1:2/mcp' : server.url
    const { code, text } = await examined({ url, required: false })
    expect(code).toBe(0)
    expect(text).toContain('✗ open')
    expect(text).toContain(hint)
    expect(text).toContain('fails at open; it is not required: rollouts run without it')
  })

  it.each([
    ['has no address', 'http://nowhere.invalid:3128', ['ENOTFOUND', 'NO_PROXY=tools.test bypasses it']],
    ['does not run', 'http://127.0.0.1:9', ['ECONNREFUSED', 'NO_PROXY=tools.test bypasses it']],
    ['is of another kind', 'socks5://127.0.0.1:9', ['HTTP_PROXY is not a valid HTTP proxy URL']],
  ])('does not blame the server if the proxy %s', async (_name, proxy, said) => {
    await using place = await temporaryRuns()
    const cwd = place.root
    await writeServers(cwd, { it: { url: 'http://tools.test/mcp' } })
    // A process of its own: this is the environment of the process.
    await using running = startMillrace({ cwd, env: { HTTP_PROXY: proxy } }, 'tools', 'doctor', 'servers.json')
    const { code, stdout } = await running.ended
    expect(code).toBe(1)
    for (const each of said) expect(stdout).toContain(each)
    expect(stdout).not.toMatch(/no server answers|cannot be resolved/)
  })

  it('finds an untrusted certificate and an unreadable file of certificate authorities', async () => {
    await using server = await HttpMcpServer.start({ isSecure: true })
    const { code, text } = await examined({ url: server.url })
    expect(code).toBe(1)
    expect(text).toMatch(/✗ open .*the certificate is not trusted .*caFile/)
    expect(text).not.toContain('no server answers')
    const misspelt = await examined({ url: server.url, caFile: 'none.pem' })
    expect(misspelt.code).toBe(2)
    expect(misspelt.text).toMatch(/✗ config .*caFile: the certificate authority none\.pem cannot be read/)
  })
})
