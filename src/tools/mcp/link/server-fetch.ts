import type * as Undici from 'undici'
import type { FetchLike } from '@modelcontextprotocol/client'
import { lastingFailure } from '../../../inference/index.ts'
import { onFirstUse } from '../../../kit/index.ts'
import { boundedResponse } from './_bounded-response.ts'
import { httpPools } from './_http-pools.ts'
import type { HttpServerConfig } from '../config/server-config.ts'

const loadUndici = onFirstUse((load) => load('undici') as typeof Undici)

/**
 * `fetch` for the SDK's requests, over the connections that all sessions share, with bounded replies; `onPosted` hears where a
 * post was accepted.
 */
export function serverFetch({ caFile }: HttpServerConfig, onPosted: (url: URL) => void = () => {}): FetchLike {
  const { fetch } = loadUndici()
  const { requests, streams } = httpPools(caFile)
  return async (url, { method = 'GET', headers, body, signal, redirect = 'follow' } = {}) => {
    const response = await fetch(url, {
      method,
      headers: [...new Headers(headers)],
      ...(typeof body === 'string' && { body }),
      signal: signal ?? null,
      redirect,
      dispatcher: method === 'GET' ? streams : requests,
    }).catch(explain)
    if (method === 'POST' && response.ok) onPosted(new URL(url))
    return boundedResponse(response)
  }
}

/** `fetch` only says that it failed; its cause says why. */
function explain(error: unknown): never {
  const cause = error instanceof Error ? error.cause : undefined
  const why = lastingFailure(cause)
  throw why === undefined ? error : new Error(why, { cause })
}
