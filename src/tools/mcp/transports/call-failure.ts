import { SdkHttpError } from '@modelcontextprotocol/client'
import { causesOf } from '../../../kit/index.ts'
import type { CallFailure } from './pending-calls.ts'

/** A request that failed with one of these codes never reached a server. */
const beforeConnected = new Set([
  'ECONNREFUSED',
  'ENOTFOUND',
  'EAI_AGAIN',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'EADDRNOTAVAIL',
  'UND_ERR_CONNECT_TIMEOUT',
])

/** The server has too much to do just now and did nothing yet. */
const busyStatuses = new Set([429, 503])
/** Statuses of proxies whose server does not answer. */
const gatewayStatuses = new Set([502, 503, 504])
/** The pause before the next try, if the server does not say. */
const busyMs = 1000

/** What an HTTP status means for a call that got it instead of an answer of MCP. */
export function statusFailure(status: number, page: string, retryAfterMs: number = busyMs): CallFailure {
  const cause = new Error(statusText(status, page))
  if (isForgottenSession(status, page)) return { kind: 'lost', mayHaveRun: false, cause }
  const isOfGateway = gatewayStatuses.has(status)
  if (busyStatuses.has(status)) return { kind: 'refused', mayHaveRun: false, cause, retryAfterMs, isOfGateway }
  // With a status of success the server took the call, and then did not say what came of it.
  return { kind: 'refused', mayHaveRun: status < 300 || status >= 500, cause, isOfGateway }
}

/** The same for the SDK's older transport, whose errors have the status only in their text. */
export function sseFailure(error: Error): CallFailure {
  const [, status, page = ''] = /^Error POSTing to endpoint \(HTTP (\d{3})\): ([^]*)/.exec(error.message) ?? []
  if (status !== undefined) return statusFailure(Number(status), page)
  const isLost = neverConnected(error)
  return { kind: isLost ? 'lost' : 'cut', mayHaveRun: !isLost, cause: error }
}

/** The text of an error. The SDK's error has a status beside its words, and often only the status says what is wrong. */
export function errorText(error: Error): string {
  if (!(error instanceof SdkHttpError)) return error.message
  const { status } = error
  const message = statusText(status, error.message.replace(/^Error POSTing to endpoint:/, ''))
  if (status === 401 || status === 403) return `${message}. Check the key in "headers"`
  return status === 404 || status === 405 ? `${message}. Check the path in "url", which is often /mcp` : message
}

export function statusOf(error: unknown): number | undefined {
  for (const cause of causesOf(error)) if (cause instanceof SdkHttpError) return cause.status
  return undefined
}

function statusText(status: number, page: string): string {
  return `HTTP ${status}: ${page.trim() || 'without a message'}`
}

export function neverConnected(error: Error): boolean {
  for (const cause of causesOf(error)) {
    if ('code' in cause && typeof cause.code === 'string' && beforeConnected.has(cause.code)) return true
  }
  return false
}

/** The specification says 404. Many servers, the SDK's own example among them, say 400 and mention the session. */
function isForgottenSession(status: number, page: string): boolean {
  return status === 404 || (status === 400 && /session/i.test(page))
}
