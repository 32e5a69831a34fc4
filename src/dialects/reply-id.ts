import { randomBytes } from 'node:crypto'
import type { ApiName } from '../schema/index.ts'

const prefixes: Readonly<Record<ApiName, string>> = { chat: 'chatcmpl-', responses: 'resp_', messages: 'msg_' }

/** A new name for a reply, as the API's own server would write it. */
export function newReplyId(api: ApiName): string {
  return prefixes[api] + randomBytes(15).toString('hex')
}
