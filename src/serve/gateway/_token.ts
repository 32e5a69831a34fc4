import type { IncomingHttpHeaders } from 'node:http'

import { bearerToken } from '../_bearer-token.ts'

/** The keys a client sent, as OpenAI's clients do and as Anthropic's do. */
export interface SentKeys {
  readonly bearer: string | undefined
  readonly apiKey: string | undefined
}

export function keysIn({ authorization, 'x-api-key': apiKey }: IncomingHttpHeaders): SentKeys {
  return {
    bearer: bearerToken(authorization),
    apiKey: typeof apiKey === 'string' ? apiKey : undefined,
  }
}
