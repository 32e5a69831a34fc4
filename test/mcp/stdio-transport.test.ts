/** Servers that answer no more, or read nothing. */
import type { JSONRPCMessage } from '@modelcontextprotocol/client'
import { expect, test } from 'vitest'
import { Program } from '../../src/process/program.ts'
import { StdioTransport } from '../../src/tools/mcp/transports/stdio-transport.ts'

const ping: JSONRPCMessage = { jsonrpc: '2.0', id: 1, method: 'ping' }

async function shell(script: string) {
  const config = { command: 'sh', args: ['-c', script] }
  const server = await Program.start({ kind: 'server', name: 'files', config, closeGraceMs: 100 })
  const transport = new StdioTransport(server)
  const closed = new Promise<void>((resolve) => Object.assign(transport, { onclose: () => resolve() }))
  return { server, transport, closed }
}

test('a server that closes its output without exiting is killed', async () => {
  const connection = await shell('exec 1>&-; sleep 60')
  await connection.transport.start()
  await connection.closed
  expect(connection.transport.failure?.rawMessage).toBe(
    "server 'files' closed its output but did not exit, so it was killed",
  )
})

test('unsent input is bounded', async () => {
  const connection = await shell('sleep 60')
  await connection.transport.start()
  const large: JSONRPCMessage = { ...ping, params: { text: 'x'.repeat(33 * 1024 * 1024) } }
  const waiting = Promise.allSettled([connection.transport.send(large), connection.transport.send(large)])
  const error: unknown = await connection.transport.send(ping).catch((thrown: unknown) => thrown)
  expect(error).toMatchObject({ rawMessage: "nothing was sent to server 'files': it does not read its input" })
  process.kill(connection.server.pid, 'SIGKILL')
  await waiting
  await connection.transport.close()
})
