import type { JSONRPCMessage } from '@modelcontextprotocol/client'

/** Whether it is a message at all. What kind it is, and whether it is whole, its receiver looks at. */
export function isRpcMessage(value: unknown): value is JSONRPCMessage {
  return typeof value === 'object' && value !== null && 'jsonrpc' in value && value.jsonrpc === '2.0'
}
