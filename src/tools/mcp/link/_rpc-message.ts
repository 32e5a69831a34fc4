import type { JSONRPCMessage } from '@modelcontextprotocol/client'

/** Whether a value is a JSON-RPC message at all. Its receiver checks its kind and its fields. */
export function isRpcMessage(value: unknown): value is JSONRPCMessage {
  return typeof value === 'object' && value !== null && 'jsonrpc' in value && value.jsonrpc === '2.0'
}
