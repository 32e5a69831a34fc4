import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, expectTypeOf, test } from 'vitest'
import type { z } from 'zod'
import {
  declaredServers,
  type httpServerSchema,
  loadServerConfigs,
  readServerConfigs,
  serverConfigsOf,
  type stdioServerSchema,
} from './read-server-configs.ts'
import { type HttpServerConfig, redactionOf, type ServerOptions, type StdioServerConfig } from './server-config.ts'

const read = (input: unknown, env: Record<string, string> = {}) => readServerConfigs(input, 'mcp.json', env)
const search = { command: 'npx', args: ['-y', 'search-server'], env: { KEY: 'k' } }
const web = { type: 'http', url: 'https://example.com/mcp', headers: { authorization: 'Bearer t' }, sharing: 'shared' }

test('the servers are the same from text, from an object and from the inner object', () => {
  const servers = { search, web }
  expect(read(JSON.stringify({ mcpServers: servers }))).toEqual(servers)
  expect(read({ mcpServers: servers })).toEqual(servers)
  expect(read(servers)).toEqual(servers)
  expect(Object.keys(read({ web, search }))).toEqual(['web', 'search'])
  expect(read({ search: { ...search, prefix: undefined } })).toStrictEqual({ search })
})

test('fields of other programs beside mcpServers are ignored', () => {
  expect(read({ mcpServers: { search }, globalShortcut: 'Ctrl+Space' })).toEqual({ search })
})

test('every option is read', () => {
  const options: Required<ServerOptions> = {
    disabled: false,
    sharing: 'pooled',
    required: false,
    allow: ['a'],
    deny: ['b'],
    parallel: true,
    prefix: 'web_',
    retry: 'always',
    resume: 'rerun',
    onRestart: 'tell',
    startTimeoutMs: 1,
    callTimeoutMs: 2,
    idleMs: 3,
    maxLifetimeMs: 4,
    pool: { warm: 0, max: 2, maxUses: 3 },
    reconnect: { max: 0, windowMs: 1 },
    awayTimeoutMs: 0,
  }
  const server = { ...search, cwd: '/tmp', type: 'stdio', ...options }
  expect(read({ search: server })).toEqual({ search: server })
})

test('a disabled server is left out, whatever else it lacks', () => {
  expect(read({ search, off: { disabled: true, env: { KEY: '${NOPE}' } } })).toEqual({ search })
})

test('the schemas have exactly the fields of the types', () => {
  expectTypeOf<keyof z.infer<typeof stdioServerSchema>>().toEqualTypeOf<keyof (StdioServerConfig & ServerOptions)>()
  expectTypeOf<keyof z.infer<typeof httpServerSchema>>().toEqualTypeOf<keyof (HttpServerConfig & ServerOptions)>()
  // What the types allow, the schemas take.
  expectTypeOf<StdioServerConfig & ServerOptions>().toExtend<Readonlyed<z.input<typeof stdioServerSchema>>>()
  expectTypeOf<HttpServerConfig & ServerOptions>().toExtend<Readonlyed<z.input<typeof httpServerSchema>>>()
})

type Readonlyed<T> = T extends object ? { readonly [Key in keyof T]: Readonlyed<T[Key]> } : T

test('variables are filled in, with defaults', () => {
  const server = { command: '${BIN:-node}', args: ['--port=${PORT}'], env: { TOKEN: '${TOKEN}' } }
  expect(read({ server }, { PORT: '80', TOKEN: 's3cret' })).toEqual({
    server: { command: 'node', args: ['--port=80'], env: { TOKEN: 's3cret' } },
  })
})

test('a value from a variable is secret wherever it is put, and not part of the configuration', () => {
  const env = { KEY: 'k-123456', FOLDER: '/home/me', OTHER: 'of-another' }
  const given = { a: { command: 'node', args: ['--key=${KEY}', '${FOLDER}', 'written'] }, b: { command: '${OTHER}' } }
  for (const { a } of [read(given, env), read({ mcpServers: read(given, env) })]) {
    if (!a) throw new Error('it was not read')
    expect(Object.keys(a)).toEqual(['command', 'args'])
    const redaction = redactionOf(a)
    expect(redaction.text('k-123456 in /home/me is not written of-another')).toBe(
      '[redacted] in [redacted] is not written of-another',
    )
  }
})

test('the error for an unset variable names its place', () => {
  const wrapped = { mcpServers: { search: { command: 'node', args: ['-y', '${NOPE}'] } } }
  expect(() => read(wrapped)).toThrow('mcp.json: mcpServers.search.args[1] needs the variable NOPE')
})

describe('errors name the place and the solution', () => {
  test.each<[string, unknown, string]>([
    ['not JSON', '{ "mcpServers": ', '[config_invalid] mcp.json: it is not JSON'],
    ['a list', [search], 'expected an object: { "mcpServers"'],
    ['a list of servers', { mcpServers: [search] }, 'mcpServers: expected an object with a server under each name'],
    [
      'a wrong kind',
      { mcpServers: { search: { ...search, args: ['a', 1] } } },
      'mcpServers.search.args[1]: expected string',
    ],
    ['in a bare map', { search: { ...search, args: 'a' } }, 'mcp.json: search.args: expected array'],
    [
      'a misspelt field',
      { search: { ...search, requird: true } },
      'search.requird: unknown field; did you mean "required"?',
    ],
    [
      'a misspelt inner field',
      { search: { ...search, pool: { wrm: 1 } } },
      'search.pool.wrm: unknown field; did you mean "warm"?',
    ],
    [
      'a misspelt choice',
      { search: { ...search, sharing: 'shard' } },
      'search.sharing: expected one of "shared"|"session"|"pooled", got "shard" (did you mean "shared"?)',
    ],
    ['a field of nobody', { search: { ...search, zzz: 1 } }, 'search.zzz: unknown field; known are type, command'],
    ['a field of the other kind', { search: { ...search, headers: {} } }, 'search.headers: unknown field'],
    ['a misspelt wrapper', { mcpServer: { search } }, 'mcpServer: unknown field; did you mean "mcpServers"?'],
    ['neither', { search: { args: [] } }, 'search: has neither a "command" nor a "url"'],
    ['a misspelt command', { search: { comand: 'x' } }, 'search.comand: unknown field; did you mean "command"?'],
    ['a misspelt url', { search: { URL: 'http://a' } }, 'search.URL: unknown field; did you mean "url"?'],
    ['both', { search: { ...search, url: 'http://a' } }, 'search: has both a "command" and a "url"'],
    ['no object', { search: 'npx' }, 'search: expected an object with a "command" or a "url"'],
    ['a bad name', { 'my server': search }, "my server: a server's name has up to 64 letters"],
    ['a URL that is none', { web: { url: 'example.com' } }, 'web.url: expected an http or https URL'],
    ['a file URL', { web: { url: 'file:///etc/passwd' } }, 'web.url: expected an http or https URL'],
    ['a password in a URL', { web: { url: 'https://me:pass@a.test' } }, 'web.url: a user name or password in a URL'],
    ['a key in a URL', { web: { url: 'https://key@a.test' } }, 'send it in "headers"'],
    ['a wrong type', { web: { ...web, type: 'stdio' } }, 'web.type: expected "stdio" for a command, or "http"'],
    ['a misspelt type', { search: { ...search, type: 'stdo' } }, '"streamable-http" or "sse" for a URL'],
    [
      'a command with sessions',
      { search: { ...search, sharing: 'session' } },
      'search.sharing: the tool server "search" is a command',
    ],
    ['a pool of URLs', { web: { ...web, sharing: 'pooled' } }, 'use "sharing": "session"'],
    [
      'a pool of one',
      { search: { ...search, sharing: 'shared', pool: {} } },
      'search.pool: there is no pool with "sharing": "shared"',
    ],
    ['too many ahead', { search: { ...search, pool: { warm: 3, max: 2 } } }, 'search.pool: warm is more than max'],
    ['no time', { search: { ...search, callTimeoutMs: 0 } }, 'search.callTimeoutMs: '],
  ])('%s', (_what, input, message) => {
    expect(() => read(input)).toThrow(message)
    expect(() => read(input)).toThrow(expect.objectContaining({ code: 'config_invalid' }))
  })

  test('many problems are reported at once, up to a limit', () => {
    const wrong = { a: 1, b: 1, c: 1, d: 1, e: 1, f: 1, g: 1 }
    expect(() => read({ search: { ...search, ...wrong } })).toThrow(/search\.a: .*search\.e: .*; and 2 more$/)
  })
})

test('a file is read, and a missing file is reported', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'millrace-servers-'))
  try {
    const file = join(folder, 'mcp.json')
    await writeFile(file, JSON.stringify({ mcpServers: { search: { command: '${BIN}' } } }))
    expect(await loadServerConfigs(file, { BIN: 'node' })).toEqual({ search: { command: 'node' } })
    await expect(loadServerConfigs(join(folder, 'none.json'))).rejects.toMatchObject({ code: 'file_not_found' })
  } finally {
    await rm(folder, { recursive: true })
  }
})

const env = { BIN: 'node' }

test('the servers of an environment are given, computed from its options, or absent', () => {
  const servers = { files: { command: '${BIN}' } }
  expect(serverConfigsOf({ name: 'e', mcpServers: servers }, {}, env)).toEqual({ files: { command: 'node' } })
  const made = { name: 'e', mcpServers: ({ folder }: { folder: string }) => ({ files: { command: 'x', cwd: folder } }) }
  expect(serverConfigsOf(made, { folder: '/a' }, env)).toEqual({ files: { command: 'x', cwd: '/a' } })
  expect(serverConfigsOf({ name: 'e' }, {}, env)).toEqual({})
})

test('an error names the environment, and declared servers keep their variables', () => {
  const environment = { name: 'e', mcpServers: { files: { command: '${NOPE}' } } }
  expect(() => serverConfigsOf(environment, {}, env)).toThrow('mcpServers of e: files.command needs the variable NOPE')
  expect(declaredServers(environment, {})).toEqual({ servers: environment.mcpServers, where: 'mcpServers of e' })
})
