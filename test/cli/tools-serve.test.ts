import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client'
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio'
import { temporaryRuns } from 'millrace/testing'
import { describe, expect, it } from 'vitest'
import { millrace, startMillrace } from '../support/cli/millrace-process.ts'
import { writeServers } from '../support/cli/tool-servers.ts'

const bin = fileURLToPath(new URL('../../bin/millrace.js', import.meta.url))

/** Prints where it must not, keeps a list per session, and writes down its end. */
const notebook = `
import { appendFileSync } from 'node:fs'
import { defineEnvironment, z } from 'millrace'

console.log('loaded')
export default defineEnvironment({
  name: 'notebook',
  task: z.object({ title: z.string() }),
  tasks: () => [{ title: 'first' }, { title: 'second' }],
  setup: ({ task }) => {
    console.log('set up')
    return { lines: [task.title] }
  },
  teardown: ({ state }) => appendFileSync('ended.txt', state.lines.join(' ') + '\\n'),
  prompt: () => 'Write.',
  tools: {
    write: {
      description: 'Adds a word',
      parameters: z.object({ word: z.string() }),
      run: ({ word }, { state }) => {
        console.log('writing', word)
        state.lines.push(word)
        return state.lines.join(' ')
      },
    },
  },
  reward: () => 0,
})
`

async function notebookFolder() {
  const place = await temporaryRuns()
  await writeFile(join(place.root, 'notebook.ts'), notebook)
  return place
}

const add = (client: Client, word: string) => client.callTool({ name: 'write', arguments: { word } })

describe('millrace tools serve', () => {
  it('serves an environment over stdio and writes only the protocol to standard output', async () => {
    await using place = await notebookFolder()
    const cwd = place.root
    const transport = new StdioClientTransport({
      command: process.execPath,
      args: [bin, 'tools', 'serve', './notebook.ts', '--task', '1'],
      cwd,
      stderr: 'pipe',
    })
    const strays: Error[] = []
    let stderr = ''
    transport.stderr?.on('data', (chunk: Buffer) => (stderr += chunk.toString()))
    const client = new Client({ name: 'test', version: '1' })
    Object.assign(client, { onerror: (error: Error) => strays.push(error) })
    await client.connect(transport)
    expect(client.getServerVersion()).toMatchObject({ name: 'notebook', version: expect.stringMatching(/^\d/) })
    expect(await client.listTools()).toMatchObject({ tools: [{ name: 'write', description: 'Adds a word' }] })
    expect(await add(client, 'one')).toMatchObject({ content: [{ text: 'second one' }] })
    expect(await add(client, 'two')).toMatchObject({ content: [{ text: 'second one two' }] })
    await client.close()
    expect(strays).toEqual([])
    for (const line of ['loaded', 'set up', 'writing one', 'notebook: 1 tool']) expect(stderr).toContain(line)
    await expect.poll(() => readFile(join(cwd, 'ended.txt'), 'utf8').catch(() => '')).toBe('second one two\n')
  })

  it('speaks the newest revision of MCP over stdio', async () => {
    await using place = await notebookFolder()
    const transport = new StdioClientTransport({
      command: process.execPath,
      args: [bin, 'tools', 'serve', './notebook.ts'],
      cwd: place.root,
      stderr: 'ignore',
    })
    const client = new Client({ name: 'test', version: '1' }, { versionNegotiation: { mode: { pin: '2026-07-28' } } })
    await client.connect(transport)
    expect(client.getNegotiatedProtocolVersion()).toBe('2026-07-28')
    expect(await add(client, 'one')).toMatchObject({ content: [{ text: 'first one' }] })
    await client.close()
  })

  it('serves over HTTP with separate state for each client, until it is interrupted', async () => {
    await using place = await notebookFolder()
    const cwd = place.root
    await using running = startMillrace({ cwd }, 'tools', 'serve', './notebook.ts', '--http', '0')
    await running.shows('stdout', '1 tool on')
    const [url = ''] = /http:\S+/.exec(running.stdout()) ?? []
    const connect = async (): Promise<Client> => {
      const client = new Client({ name: 'test', version: '1' })
      await client.connect(new StreamableHTTPClientTransport(new URL(url)))
      return client
    }
    const [one, other] = [await connect(), await connect()]
    expect(await add(one, 'a')).toMatchObject({ content: [{ text: 'first a' }] })
    expect(await add(other, 'b')).toMatchObject({ content: [{ text: 'first b' }] })
    running.process.kill('SIGTERM')
    expect(await running.ended).toMatchObject({ code: 0 })
    await Promise.all([one.close(), other.close()])
    expect((await readFile(join(cwd, 'ended.txt'), 'utf8')).split('\n').toSorted()).toEqual(['', 'first a', 'first b'])
  })

  it('names its own flag if the port is taken', async () => {
    await using place = await notebookFolder()
    const cwd = place.root
    await using running = startMillrace({ cwd }, 'tools', 'serve', './notebook.ts', '--http', '0')
    await running.shows('stdout', '1 tool on')
    const [, port = ''] = /http:\/\/[^:]+:(\d+)/.exec(running.stdout()) ?? []
    const second = await millrace({ cwd }, 'tools', 'serve', './notebook.ts', '--http', port)
    expect(second.code).toBe(2)
    expect(second.stderr).toContain('Choose another --http (port), or 0 for any')
  })

  it('can be used as a tool server by millrace itself', async () => {
    await using place = await notebookFolder()
    const cwd = place.root
    await writeServers(cwd, { notes: { command: process.execPath, args: [bin, 'tools', 'serve', './notebook.ts'] } })
    const called = await millrace({ cwd }, 'tools', 'call', 'servers.json', 'notes.write', '--arg', 'word=ours')
    expect(called).toMatchObject({ code: 0, stdout: 'first ours\n' })
    expect(await readFile(join(cwd, 'ended.txt'), 'utf8')).toBe('first ours\n')
  })

  it('exits when its client disconnects or dies, and reports a task that does not exist', async () => {
    await using place = await notebookFolder()
    const cwd = place.root
    const child = spawn(process.execPath, [bin, 'tools', 'serve', './notebook.ts'], {
      cwd,
      stdio: ['pipe', 'pipe', 'pipe'],
    })
    child.stdin.end()
    expect(await once(child, 'exit')).toEqual([0, null])
    const missing = await millrace({ cwd }, 'tools', 'serve', './notebook.ts', '--task', '7')
    expect(missing).toMatchObject({ code: 2, stdout: '' })
    expect(missing.stderr).toContain('notebook has 2 tasks, so --task (task) is 0 to 1, not 7')
  })
})
