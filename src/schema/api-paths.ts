import type { ApiName } from './api-name.ts'

/** The path of each API below the base url of a server. */
export const apiPaths: Readonly<Record<ApiName, string>> = {
  chat: '/chat/completions',
  responses: '/responses',
  messages: '/messages',
}

/** The path to ask for the length of a prompt, in the APIs that have one. */
export const countPaths: Readonly<Record<Exclude<ApiName, 'chat'>, string>> = {
  responses: `${apiPaths.responses}/input_tokens`,
  messages: `${apiPaths.messages}/count_tokens`,
}
