/** Servers from npm, as users have them: over stdio and over HTTP, shared, pooled, and a session per rollout. */
import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readFile, realpath, rm } from 'node:fs/promises'
import { createServer, type AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { mcpTools, type McpToolContext } from '../../src/tools/mcp/catalogue/mcp-tools.ts'
import type { ServerConfig } from '../../src/tools/mcp/config/server-config.ts'
import { ToolServers } from '../../src/tools/mcp/sharing/tool-servers.ts'
import { ToolBox } from '../../src/tools/tool-box.ts'

const { signal } = new AbortController()

const program = (name: string): string =>
  fileURLToPath(new URL(`../../node_modules/@modelcontextprotocol/server-${name}/dist/index.js`, import.meta.url))

const stdio = (name: string, ...args: string[]) => ({ command: process.execPath, args: [program(name), ...args] })

async function temporaryFolder() {
  const path = await realpath(await mkdtemp(join(tmpdir(), 'millrace-real-')))
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true, force: true }) }
}

/** `server-everything` over Streamable HTTP, on a port that was free a moment ago. */
class EverythingOverHttp implements AsyncDisposable {
  readonly url: string
  readonly #child: ChildProcess
  #said = ''

  private constructor(port: number) {
    this.url = `http://127.0.0.1:${port}/mcp`
    this.#child = spawn(process.execPath, [program('everything'), 'streamableHttp'], {
      env: { ...process.env, PORT: String(port) },
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    for (const stream of [this.#child.stdout, this.#child.stderr]) {
      stream?.setEncoding('utf8').on('data', (text: string) => {
        this.#said += text
      })
    }
  }

  static async start(): Promise<EverythingOverHttp> {
    const probe = createServer().listen(0, '127.0.0.1')
    await once(probe, 'listening')
    const { port } = probe.address() as AddressInfo
    probe.close()
    await once(probe, 'close')
    const server = new EverythingOverHttp(port)
    await expect.poll(() => server.#said).toContain('listening on port')
    return server
  }

  /** Sessions that were begun and ended so far, by its own account. */
  get sessions(): { begun: number; ended: number } {
    const count = (pattern: RegExp): number => new Set(this.#said.match(pattern)).size
    return {
      begun: count(/Session initialized with ID: \S+/g),
      ended: count(/session termination request for session \S+/g),
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const ended = once(this.#child, 'exit')
    this.#child.kill('SIGKILL')
    await ended
  }
}

function boxOf(lease: Awaited<ReturnType<ToolServers['lease']>>, configs: Record<string, ServerConfig>) {
  const box = new ToolBox<McpToolContext>(mcpTools(lease.catalogues, configs))
  return {
    names: box.definitions.map((definition) => definition.function.name),
    async call(name: string, args: object) {
      const call = { id: '1', type: 'function', function: { name, arguments: JSON.stringify(args) } } as const
      const [result] = await box.call([call], { context: { servers: lease, signal }, signal })
      return { status: result?.record.status, content: result?.message.content, detail: result?.record.detail }
    },
  }
}

test('three servers from npm offer their tools together and answer', async () => {
  await using folder = await temporaryFolder()
  const configs: Record<string, ServerConfig> = {
    everything: { ...stdio('everything'), sharing: 'shared', allow: ['echo', 'get-sum'] },
    files: { ...stdio('filesystem', folder.path), deny: ['move_file'] },
    memory: { ...stdio('memory'), env: { MEMORY_FILE_PATH: join(folder.path, 'memory.json') } },
  }
  await using servers = new ToolServers({ servers: configs })
  await servers.warm()
  await using lease = await servers.lease({ signal })
  const tools = boxOf(lease, configs)
  expect(lease.failures).toEqual([])
  expect(tools.names).toEqual(expect.arrayContaining(['echo', 'get-sum', 'write_file', 'create_entities']))
  expect(tools.names).not.toContain('move_file')

  expect(await tools.call('get-sum', { a: 2, b: 3 })).toMatchObject({
    status: 'ok',
    content: expect.stringContaining('5'),
  })
  expect(await tools.call('get-sum', { a: 2 })).toMatchObject({
    status: 'bad_arguments',
    content: expect.stringContaining('b: is missing'),
  })
  const path = join(folder.path, 'note.txt')
  expect(await tools.call('write_file', { path, content: 'kept' })).toMatchObject({
    status: 'ok',
    detail: { server: 'files', generation: 1 },
  })
  expect(await readFile(path, 'utf8')).toBe('kept')
  expect(await tools.call('read_text_file', { path: '/etc/passwd' })).toMatchObject({ status: 'failed' })
  const entity = { name: 'Ada', entityType: 'person', observations: ['wrote programs'] }
  expect(await tools.call('create_entities', { entities: [entity] })).toMatchObject({ status: 'ok' })
  expect(await tools.call('read_graph', {})).toMatchObject({
    status: 'ok',
    content: expect.stringContaining('wrote programs'),
  })
})

test('over HTTP: each rollout has one session on one server, which ends with the rollout', async () => {
  await using everything = await EverythingOverHttp.start()
  const configs = { web: { url: everything.url } }
  await using servers = new ToolServers({ servers: configs })
  await Promise.all(
    Array.from({ length: 4 }, async (_, rollout) => {
      await using lease = await servers.lease({ signal })
      const tools = boxOf(lease, configs)
      for (const turn of [1, 2, 3]) {
        const message = `rollout ${rollout}, turn ${turn}`
        expect(await tools.call('echo', { message })).toMatchObject({ status: 'ok', content: `Echo: ${message}` })
      }
    }),
  )
  await expect.poll(() => everything.sessions).toEqual({ begun: 4, ended: 4 })
})

test('over HTTP, shared: all rollouts use one session', async () => {
  await using everything = await EverythingOverHttp.start()
  await using servers = new ToolServers({ servers: { web: { url: everything.url, sharing: 'shared' } } })
  await servers.warm()
  const leases = await Promise.all(Array.from({ length: 8 }, () => servers.lease({ signal })))
  const answers = await Promise.all(
    leases.map((lease, rollout) => lease.call('web', { tool: 'echo', arguments: { message: `${rollout}` }, signal })),
  )
  expect(answers.map(({ content }) => content)).toEqual(leases.map((_, rollout) => `Echo: ${rollout}`))
  expect(everything.sessions.begun).toBe(1)
})
