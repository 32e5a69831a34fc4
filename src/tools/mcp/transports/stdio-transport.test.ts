import { Client, type JSONRPCMessage } from '@modelcontextprotocol/client'
import { expect, test } from 'vitest'
import { misbehaving, ServerLog } from '../../../../test/fixtures/mcp/misbehaving.ts'
import { Program } from '../../../process/program.ts'
import type { StdioServerConfig } from '../config/server-config.ts'
import { StdioTransport } from './stdio-transport.ts'

const ping: JSONRPCMessage = { jsonrpc: '2.0', id: 1, method: 'ping' }

async function open(config: StdioServerConfig, options?: { maxLineBytes?: number }) {
  const server = await Program.start({ kind: 'server', name: 'files', config, closeGraceMs: 200 })
  const transport = new StdioTransport(server, options)
  const seen = { messages: [] as JSONRPCMessage[], errors: [] as Error[], closes: 0 }
  const { promise: closed, resolve } = Promise.withResolvers<void>()
  Object.assign(transport, {
    onmessage: (message: JSONRPCMessage) => seen.messages.push(message),
    onerror: (error: Error) => seen.errors.push(error),
    onclose: () => {
      seen.closes += 1
      resolve()
    },
  })
  return { server, transport, seen, closed, [Symbol.asyncDispose]: () => transport.close() }
}

const shell = (script: string, options?: { maxLineBytes?: number }) =>
  open({ command: 'sh', args: ['-c', script] }, options)

test('the client of the SDK works over the transport', async () => {
  using log = new ServerLog()
  await using connection = await open(misbehaving(log.mode))
  const client = new Client({ name: 'test', version: '1' })
  await client.connect(connection.transport)
  const answers = await Promise.all(
    Array.from({ length: 50 }, (_, a) => client.callTool({ name: 'add', arguments: { a, b: 1 } })),
  )
  expect(answers.map(({ structuredContent }) => structuredContent)).toEqual(answers.map((_, a) => ({ sum: a + 1 })))
  expect(log.count('call')).toBe(50)
  await client.close()
  expect(connection.server.exit).toEqual({ code: 0, signal: null })
})

test('lines that are not messages are skipped', async () => {
  const answer = '{"jsonrpc":"2.0","id":1,"result":{}}'
  await using connection = await shell(`printf 'Welcome!\\n\\n{"level":"info"}\\n"text"\\n[1]\\n${answer}\\r\\n'; cat`)
  await connection.transport.start()
  await expect.poll(() => connection.seen.messages).toEqual([{ jsonrpc: '2.0', id: 1, result: {} }])
  expect(connection.seen.errors).toEqual([])
})

test('an error in the receiver of a message does not end the connection', async () => {
  await using connection = await open({ command: 'cat' })
  const { transport, seen } = connection
  Object.assign(transport, {
    onmessage(message: JSONRPCMessage) {
      seen.messages.push(message)
      throw new Error('what is this?')
    },
  })
  await transport.start()
  await transport.send(ping)
  await transport.send(ping)
  await expect.poll(() => seen.messages).toEqual([ping, ping])
  expect(seen.errors).toMatchObject([{ rawMessage: 'what is this?' }, { rawMessage: 'what is this?' }])
})

test('a line over the limit ends the connection, with a reason', async () => {
  const connection = await shell('yes | tr -d "\\n"', { maxLineBytes: 1_000_000 })
  await connection.transport.start()
  await connection.closed
  expect(connection.transport.failure?.rawMessage).toBe(
    "server 'files' wrote a line of more than 1000000 bytes and was closed: have its tool return less",
  )
  expect(connection.seen.errors).toEqual([connection.transport.failure])
})

test('the end of the process is reported once, after its exit code and all output are read', async () => {
  const connection = await shell(`echo '${JSON.stringify(ping)}'; echo no more >&2; exit 4`)
  const { closed, server, transport, seen } = connection
  // Right when it is told, not a moment later.
  const known = closed.then(() => ({ exit: server.exit, data: transport.failure?.data, messages: [...seen.messages] }))
  await transport.start()
  expect(await known).toMatchObject({
    exit: { code: 4, signal: null },
    data: { exitCode: 4, stderr: 'no more\n' },
    messages: [ping],
  })
  await transport.close()
  expect(seen.closes).toBe(1)
})

test('closing twice is reported once', async () => {
  const connection = await open({ command: 'cat' })
  await connection.transport.start()
  await Promise.all([connection.transport.close(), connection.transport.close()])
  expect(connection.seen.closes).toBe(1)
})

test('closing before the start ends the process', async () => {
  const connection = await open({ command: 'cat' })
  await connection.transport.close()
  expect(connection.server.exit).toEqual({ code: 0, signal: null })
})

test('a message to an ended server is reported as not written', async () => {
  const connection = await open({ command: 'cat' })
  await connection.transport.start()
  await connection.transport.close()
  const error: unknown = await connection.transport.send(ping).catch((thrown: unknown) => thrown)
  expect(error).toMatchObject({
    rawMessage: "nothing was sent to server 'files': it is gone",
    data: { written: false },
  })
})

test('a message waits while the server does not read, and is not written if the server ends', async () => {
  const connection = await shell('sleep 60')
  await connection.transport.start()
  const order: string[] = []
  void connection.closed.then(() => order.push('closed'))
  // The first fills the pipe and part of it is taken, the second waits behind it.
  const large: JSONRPCMessage = { ...ping, params: { text: 'x'.repeat(1_000_000) } }
  const sends = [large, ping].map((message) =>
    connection.transport.send(message).then(
      () => order.push('written'),
      () => order.push('never written'),
    ),
  )
  await new Promise(setImmediate)
  expect(order).toEqual([])
  process.kill(connection.server.pid, 'SIGKILL')
  await Promise.all(sends)
  await connection.transport.close()
  expect(order).toEqual(['never written', 'never written', 'closed'])
})

test('a call that was written but not answered fails with a lost connection', async () => {
  using log = new ServerLog()
  await using connection = await open(misbehaving(log.mode, 'crash-mid-call'))
  const client = new Client({ name: 'test', version: '1' })
  await client.connect(connection.transport)
  await expect(client.callTool({ name: 'counter', arguments: {} })).rejects.toThrow('Connection closed')
  expect(log.count('call')).toBe(1)
  expect(connection.transport.failure?.data).toMatchObject({ exitCode: 7 })
})
