import { request } from 'node:http'
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client'
import { WebStandardStreamableHTTPServerTransport } from '@modelcontextprotocol/server'
import { describe, expect, it, vi } from 'vitest'
import { activeResources, leftSince } from '../../../test/support/kit/active-resources.ts'
import { ToolServers } from '../../tools/index.ts'
import { counter } from '../../../test/support/serve/counter-environment.ts'
import { HttpToolServer, type HttpToolServerOptions } from './http-tool-server.ts'
import type { ServedTools } from './served-tools.ts'

const initialize = {
  jsonrpc: '2.0',
  id: 1,
  method: 'initialize',
  params: { protocolVersion: '2025-06-18', capabilities: {}, clientInfo: { name: 'test', version: '1' } },
}

function open(tools: ServedTools, options: Partial<HttpToolServerOptions> = {}): Promise<HttpToolServer> {
  return HttpToolServer.open({ tools, version: '1.2.3', port: 0, onFault: () => {}, ...options })
}

async function connect({ url }: HttpToolServer, mode: 'legacy' | 'auto' = 'legacy') {
  const client = new Client({ name: 'test', version: '1' }, { versionNegotiation: { mode } })
  const { promise: listens, resolve } = Promise.withResolvers<void>()
  const transport = new StreamableHTTPClientTransport(new URL(url), {
    fetch: async (target, init) => {
      const response = await fetch(target, init)
      if (init?.method === 'GET') resolve()
      return response
    },
  })
  await client.connect(transport)
  return {
    client,
    transport,
    /** Resolves when the stream is open on which the HTTP server may speak unasked. */
    listens,
    [Symbol.asyncDispose]: () => client.close(),
  }
}

/** Not `fetch`, which lets nobody choose a Host. */
function post(
  url: string,
  body: unknown,
  headers: Record<string, string> = {},
): Promise<{ status: number; text: string }> {
  const accept = 'application/json, text/event-stream'
  return new Promise((resolve, reject) => {
    const sent = request(url, { method: 'POST', headers: { 'content-type': 'application/json', accept, ...headers } })
    sent.on('error', reject)
    sent.on('response', (response) => {
      let text = ''
      response.setEncoding('utf8')
      response.on('data', (chunk: string) => (text += chunk))
      response.on('end', () => resolve({ status: response.statusCode ?? 0, text }))
    })
    sent.end(typeof body === 'string' ? body : JSON.stringify(body))
  })
}

describe('HttpToolServer', () => {
  it('tears down the setup of a client that could not connect', async () => {
    const { tools, log } = await counter()
    await using httpServer = await open(tools)
    const transport = WebStandardStreamableHTTPServerTransport.prototype
    const start = Object.getOwnPropertyDescriptor(transport, 'start')
    transport.start = () => {
      Object.defineProperty(transport, 'start', start ?? {})
      return Promise.reject(new Error('no transport'))
    }
    const refused = await post(httpServer.url, initialize)
    expect(refused).toMatchObject({ status: 500 })
    expect(refused.text).toContain('no transport')
    expect(log.tornDown).toEqual([10])
    expect(httpServer.sessions).toBe(0)
    await using next = await connect(httpServer)
    expect(await next.client.callTool({ name: 'add', arguments: { by: 1 } })).toMatchObject({
      content: [{ text: '11' }],
    })
  })

  it('gives each client an environment session of its own', async () => {
    const before = activeResources()
    const { tools, log } = await counter()
    {
      await using httpServer = await open(tools)
      await using one = await connect(httpServer)
      // A client that would rather speak a revision without sessions is led back to one with them.
      await using other = await connect(httpServer, 'auto')
      expect(one.client.getServerVersion()).toMatchObject({ name: 'counter', version: '1.2.3' })
      expect(one.client.getInstructions()).toBe('Counts up from what the task says.')
      const listed = await one.client.listTools()
      expect(listed.tools.map(({ name }) => name)).toEqual(['add', 'wait', 'wait_alone', 'fail', 'draw', 'delegate'])
      expect(listed.tools[0]).toMatchObject({
        description: 'Adds to the count',
        inputSchema: {
          type: 'object',
          properties: { by: { type: 'number', description: 'how many' } },
          required: ['by'],
        },
      })
      const add = { name: 'add', arguments: { by: 1 } }
      expect(await one.client.callTool(add)).toEqual({ content: [{ type: 'text', text: '11' }] })
      expect(await one.client.callTool(add)).toEqual({ content: [{ type: 'text', text: '12' }] })
      expect(await other.client.callTool(add)).toEqual({ content: [{ type: 'text', text: '11' }] })
      expect(httpServer.sessions).toBe(2)
      await one.transport.terminateSession()
      expect(log.tornDown).toEqual([12])
      expect(httpServer.sessions).toBe(1)
    }
    expect(log.tornDown).toEqual([12, 11])
    expect(await leftSince(before)).toEqual([])
  })

  it('serves the sessions of our own client, one per rollout', async () => {
    const { tools, log } = await counter()
    await using httpServer = await open(tools)
    await using servers = new ToolServers({ servers: { counter: { url: httpServer.url, sharing: 'session' } } })
    const { signal } = new AbortController()
    const add = { tool: 'add', arguments: { by: 2 }, signal }
    {
      await using one = await servers.lease({ signal })
      await using other = await servers.lease({ signal })
      expect(one.catalogues[0]?.tools.map(({ name }) => name)).toContain('add')
      expect(await one.call('counter', add)).toMatchObject({ content: '12', isError: false })
      expect(await one.call('counter', add)).toMatchObject({ content: '14' })
      expect(await other.call('counter', add)).toMatchObject({ content: '12' })
      expect(await other.call('counter', { ...add, tool: 'fail' })).toMatchObject({ isError: true })
    }
    await expect.poll(() => new Set(log.tornDown)).toEqual(new Set([12, 14]))
  })

  it('returns tool errors as the model would see them', async () => {
    const { tools } = await counter()
    await using httpServer = await open(tools)
    await using one = await connect(httpServer)
    const said = async (name: string, given = {}) => await one.client.callTool({ name, arguments: given })
    expect(await said('fail')).toEqual({ content: [{ type: 'text', text: 'Error: it is broken' }], isError: true })
    expect(await said('add', { by: 'two' })).toMatchObject({
      content: [{ text: expect.stringContaining('bad arguments for add') }],
      isError: true,
    })
    expect(await said('ad', { by: 2 })).toMatchObject({
      content: [{ text: expect.stringContaining('Did you mean add?') }],
      isError: true,
    })
    expect(await said('draw')).toEqual({
      content: [
        { type: 'text', text: 'a dot' },
        { type: 'image', mimeType: 'image/png', data: 'iVBORw0K' },
        { type: 'resource_link', uri: 'https://example.org/dot.png', name: 'image' },
      ],
    })
  })

  it('aborts a cancelled tool call, and the calls of an ended session', async () => {
    const { tools, log } = await counter()
    await using httpServer = await open(tools)
    await using one = await connect(httpServer)
    const given = new AbortController()
    const cancelled = one.client.callTool({ name: 'wait', arguments: {} }, { signal: given.signal })
    await expect.poll(() => log.events).toEqual(['wait starts'])
    given.abort(new Error('no longer wanted'))
    await expect(cancelled).rejects.toThrow('no longer wanted')
    await expect.poll(() => log.stopped).toEqual(['wait'])
    const left = one.client.callTool({ name: 'wait_alone', arguments: {} }).catch(() => 'rejected')
    await expect.poll(() => log.events.at(-1)).toBe('wait_alone starts')
    await one.transport.terminateSession()
    expect(log.stopped).toEqual(['wait', 'wait_alone'])
    await one.client.close()
    expect(await left).toBe('rejected')
  })

  it('accepts requests only from this machine, under its own host names', async () => {
    const { tools, log } = await counter()
    await using httpServer = await open(tools)
    expect(new URL(httpServer.url).hostname).toBe('127.0.0.1')
    expect(await post(httpServer.url, initialize, { host: 'evil.example' })).toMatchObject({ status: 403 })
    expect(await post(httpServer.url, initialize, { origin: 'https://evil.example' })).toMatchObject({ status: 403 })
    const refused = await post(httpServer.url, initialize, { origin: 'http://localhost:3000' })
    expect(refused).toMatchObject({ status: 403 })
    expect(JSON.parse(refused.text)).toMatchObject({ jsonrpc: '2.0', error: { code: -32_000 }, id: null })
    expect(log.setUp).toEqual([])
    const { port } = new URL(httpServer.url)
    expect(await post(httpServer.url, initialize, { origin: `http://127.0.0.1:${port}` })).toMatchObject({
      status: 200,
    })
  })

  it('limits the number of sessions, and reports the limit', async () => {
    const { tools } = await counter()
    await using httpServer = await open(tools, { maxSessions: 1 })
    const one = await connect(httpServer)
    const refused = await post(httpServer.url, initialize)
    expect(refused.status).toBe(503)
    expect(refused.text).toContain('there are 1 sessions, which is the limit')
    await one.transport.terminateSession()
    await one.client.close()
    await using _other = await connect(httpServer)
  })

  it('ends an idle session, unless a client listens to it', async () => {
    const { tools, log } = await counter()
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
    using _time = { [Symbol.dispose]: () => void vi.useRealTimers() }
    await using httpServer = await open(tools)
    await using one = await connect(httpServer)
    await one.listens
    const add = () => one.client.callTool({ name: 'add', arguments: { by: 1 } })
    expect(await add()).toMatchObject({ content: [{ text: '11' }] })
    await post(httpServer.url, initialize)
    expect(httpServer.sessions).toBe(2)
    const later = () => {
      vi.advanceTimersByTime(10 * 60_000)
      return [httpServer.sessions, log.tornDown]
    }
    // Again and again, because the HTTP server notes that a request has ended only after its client does.
    await expect.poll(later).toEqual([1, [10]])
    expect(later()).toEqual([1, [10]])
    expect(await add()).toMatchObject({ content: [{ text: '12' }] })
  })

  it('waits on close for the session of a client that left during setup', async () => {
    const settingUp = Promise.withResolvers<void>()
    const tidying = Promise.withResolvers<void>()
    const isTidy = Promise.withResolvers<void>()
    const { tools } = await counter({
      setup: async () => {
        settingUp.resolve()
        await new Promise(() => {})
      },
      teardown: async () => {
        tidying.resolve()
        await isTidy.promise
      },
    })
    const httpServer = await open(tools)
    const sent = request(httpServer.url, { method: 'POST', headers: { 'content-type': 'application/json' } })
    sent.on('error', () => {})
    sent.end(JSON.stringify(initialize))
    await settingUp.promise
    sent.destroy()
    await tidying.promise
    let isClosed = false
    const closing = httpServer.close().then(() => (isClosed = true))
    // Meanwhile servers that have nobody to wait for come to their end.
    for (let other = 0; other < 5; other += 1) await (await open(tools)).close()
    expect(isClosed).toBe(false)
    isTidy.resolve()
    await closing
  })

  it('answers a failed setup, an unknown session and a request without a session', async () => {
    let isBroken = true
    const { tools } = await counter({
      setup: () => {
        if (isBroken) throw new Error('no disk')
      },
    })
    await using httpServer = await open(tools)
    const failed = await post(httpServer.url, initialize)
    expect(failed).toMatchObject({ status: 500, text: expect.stringMatching(/setup threw Error at .*: no disk/) })
    const list = { jsonrpc: '2.0', id: 2, method: 'tools/list' }
    expect(await post(httpServer.url, list, { 'mcp-session-id': 'none' })).toMatchObject({ status: 404 })
    expect(await post(httpServer.url, list)).toMatchObject({ status: 400 })
    for (const text of ['"not a message"', '{ not JSON']) {
      expect(await post(httpServer.url, text)).toMatchObject({
        status: 400,
        text: expect.stringContaining('"jsonrpc":"2.0"'),
      })
    }
    expect(await post(httpServer.url, JSON.stringify('x'.repeat(4 * 1024 * 1024)))).toMatchObject({ status: 413 })
    expect(await post(`${httpServer.url}/elsewhere`, list)).toMatchObject({ status: 404 })
    const other = await fetch(httpServer.url, { method: 'PUT' })
    expect([other.status, other.headers.get('allow')]).toEqual([405, 'DELETE, GET, HEAD, POST'])
    isBroken = false
    await using one = await connect(httpServer)
    expect((await one.client.listTools()).tools).toHaveLength(6)
  })
})
