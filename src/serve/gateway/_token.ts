import type { IncomingHttpHeaders } from 'node:http'

const scheme = 'bearer '

/** The key a client sent, as OpenAI's clients do or as Anthropic's do. */
export function tokenOf({ authorization, 'x-api-key': apiKey }: IncomingHttpHeaders): string | undefined {
  if (authorization !== undefined && authorization.slice(0, scheme.length).toLowerCase() === scheme) {
    return authorization.slice(scheme.length)
  }
  return typeof apiKey === 'string' ? apiKey : undefined
}
