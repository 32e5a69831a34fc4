import { randomBytes } from 'node:crypto'
import type { ClientApi } from '../schema/index.ts'

const prefixes: Readonly<Record<ClientApi, string>> = {
  chat: 'chatcmpl-',
  responses: 'resp_',
  messages: 'msg_',
  generate: '',
}

/** A new id for a reply, in the style of the API's own server. */
export function newReplyId(api: ClientApi): string {
  return prefixes[api] + randomBytes(15).toString('hex')
}
