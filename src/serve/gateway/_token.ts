import type { IncomingHttpHeaders } from 'node:http'

const scheme = 'bearer '

/** The keys a client sent, as OpenAI's clients do and as Anthropic's do. */
export interface SentKeys {
  readonly bearer: string | undefined
  readonly apiKey: string | undefined
}

export function keysIn({ authorization, 'x-api-key': apiKey }: IncomingHttpHeaders): SentKeys {
  const isBearer = authorization !== undefined && authorization.slice(0, scheme.length).toLowerCase() === scheme
  return {
    bearer: isBearer ? authorization.slice(scheme.length) : undefined,
    apiKey: typeof apiKey === 'string' ? apiKey : undefined,
  }
}
