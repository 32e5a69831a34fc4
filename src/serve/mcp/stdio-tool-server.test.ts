import { PassThrough } from 'node:stream'
import { describe, expect, it } from 'vitest'
import { counter } from '../../../test/support/serve/counter-environment.ts'
import { StdioToolServer } from './stdio-tool-server.ts'

const signal = new AbortController().signal

async function open() {
  const { tools, log, release } = await counter()
  const input = new PassThrough()
  const output = new PassThrough({ encoding: 'utf8' })
  const faults: unknown[] = []
  const httpServer = await StdioToolServer.open({
    tools,
    version: '1.2.3',
    input,
    output,
    signal,
    onFault: (error) => faults.push(error),
  })
  let text = ''
  output.on('data', (chunk: string) => (text += chunk))
  return {
    httpServer,
    log,
    release,
    faults,
    input,
    say: (message: object) => input.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`),
    /** Everything that was said so far: each line must be a message. */
    received: () =>
      text
        .split('\n')
        .filter(Boolean)
        .map((line): unknown => JSON.parse(line)),
    [Symbol.asyncDispose]: () => httpServer.close(),
  }
}

const hello = {
  id: 1,
  method: 'initialize',
  params: { protocolVersion: '2025-06-18', capabilities: {}, clientInfo: { name: 'test', version: '1' } },
}

describe('StdioToolServer', () => {
  it('is one session, from the first message until the client disconnects', async () => {
    await using line = await open()
    line.say(hello)
    line.say({ method: 'notifications/initialized' })
    line.say({ id: 2, method: 'tools/call', params: { name: 'add', arguments: { by: 3 } } })
    line.say({ id: 3, method: 'tools/call', params: { name: 'add', arguments: { by: 4 } } })
    await expect.poll(line.received).toMatchObject([
      { id: 1, result: { serverInfo: { name: 'counter', version: '1.2.3' } } },
      { id: 2, result: { content: [{ text: '13' }] } },
      { id: 3, result: { content: [{ text: '17' }] } },
    ])
    line.input.end()
    await line.httpServer.ended
    await line.httpServer.close()
    expect(line.log.tornDown).toEqual([17])
  })

  it('aborts running calls when the client disconnects, and reports invalid messages', async () => {
    await using line = await open()
    line.input.write('{"jsonrpc": 2}\n')
    await expect.poll(() => line.faults).toHaveLength(1)
    line.say(hello)
    line.say({ id: 2, method: 'tools/call', params: { name: 'wait' } })
    await expect.poll(() => line.log.events).toEqual(['wait starts'])
    line.input.end()
    await line.httpServer.ended
    await line.httpServer.close()
    expect(line.log).toMatchObject({ stopped: ['wait'], tornDown: [10] })
  })
})
