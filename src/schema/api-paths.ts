import type { ApiName } from './api-name.ts'

/** Where each API is, below the base url of a server. */
export const apiPaths: Readonly<Record<ApiName, string>> = {
  chat: '/chat/completions',
  responses: '/responses',
  messages: '/messages',
}

/** Where the length of a prompt is asked for, in the APIs that have that. */
export const countPaths: Readonly<Record<Exclude<ApiName, 'chat'>, string>> = {
  responses: `${apiPaths.responses}/input_tokens`,
  messages: `${apiPaths.messages}/count_tokens`,
}
