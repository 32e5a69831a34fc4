/** A server that waits before it answers for the first time, and computes next to nothing. */
import { createInterface } from 'node:readline'
import { setTimeout as pause } from 'node:timers/promises'

interface Request {
  readonly id?: number | string
  readonly method: string
  readonly params?: { readonly protocolVersion?: string }
}

await pause(Number(process.argv[2]))
for await (const line of createInterface({ input: process.stdin })) {
  const { id, method, params } = JSON.parse(line) as Request
  if (id === undefined) continue
  const result =
    method === 'initialize'
      ? {
          protocolVersion: params?.protocolVersion,
          capabilities: { tools: {} },
          serverInfo: { name: 'waiting', version: '1' },
        }
      : { tools: [] }
  console.log(JSON.stringify({ jsonrpc: '2.0', id, result }))
}
