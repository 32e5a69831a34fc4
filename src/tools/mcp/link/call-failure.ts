import { SdkHttpError } from '@modelcontextprotocol/client'
import type { CallFailure } from './pending-call.ts'

/** A request that failed with one of these never reached a server. */
const beforeConnected = new Set([
  'ECONNREFUSED',
  'ENOTFOUND',
  'EAI_AGAIN',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'EADDRNOTAVAIL',
  'UND_ERR_CONNECT_TIMEOUT',
])

/** Too much to do just now: the server did nothing yet, and says so. */
const busyStatuses = new Set([429, 503])
/** For one that does not say when to ask again. */
const busyMs = 1000

/** What it means for a call that it was answered with a status, before or instead of any answer of MCP. */
export function statusFailure(status: number, page: string, retryAfterMs: number = busyMs): CallFailure {
  const cause = new Error(statusWords(status, page))
  if (isForgottenSession(status, page)) return { kind: 'lost', mayHaveRun: false, cause }
  if (busyStatuses.has(status)) return { kind: 'refused', mayHaveRun: false, cause, retryAfterMs }
  // With a status that means yes it took the call, and then said nothing of what came of it.
  return { kind: 'refused', mayHaveRun: status < 300 || status >= 500, cause }
}

/** The same for the SDK's older transport, which has the status in its text alone. */
export function sseFailure(error: Error): CallFailure {
  const [, status, page = ''] = /^Error POSTing to endpoint \(HTTP (\d{3})\): ([^]*)/.exec(error.message) ?? []
  if (status !== undefined) return statusFailure(Number(status), page)
  const isLost = neverConnected(error)
  return { kind: isLost ? 'lost' : 'cut', mayHaveRun: !isLost, cause: error }
}

/** What an error says. The SDK's has a status beside its words, and often nothing but the status says what is wrong. */
export function wordsOf(error: Error): string {
  if (!(error instanceof SdkHttpError)) return error.message
  const { status } = error
  const said = statusWords(status, error.message.replace(/^Error POSTing to endpoint:/, ''))
  if (status === 401 || status === 403) return `${said}. Check the key in "headers"`
  return status === 404 || status === 405 ? `${said}. Check the path in "url", which is often /mcp` : said
}

function statusWords(status: number, page: string): string {
  return `HTTP ${status}: ${page.trim() || 'no further words'}`
}

export function neverConnected(error: Error): boolean {
  for (const cause of causesOf(error)) {
    if ('code' in cause && typeof cause.code === 'string' && beforeConnected.has(cause.code)) return true
  }
  return false
}

/** The error and what caused it, as far as four links: an error may be its own cause. */
export function* causesOf(error: unknown): Generator<Error> {
  let link = error
  for (let depth = 0; depth < 4 && link instanceof Error; depth += 1) {
    yield link
    link = link.cause
  }
}

/** By the specification 404. Many servers, the SDK's own example among them, say 400 and that they know no such session. */
function isForgottenSession(status: number, page: string): boolean {
  return status === 404 || (status === 400 && /session/i.test(page))
}
