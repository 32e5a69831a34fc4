import type { ApiName } from './api-name.ts'

/** Where each API is, below the base url of a server. */
export const apiPaths: Readonly<Record<ApiName, string>> = {
  chat: '/chat/completions',
  responses: '/responses',
  messages: '/messages',
}
