import { MillraceError } from '../errors/index.ts'

/** Response headers as undici gives them. */
export type ResponseHeaders = Readonly<Record<string, string | string[] | undefined>>

/** The wait that the server asked for, in milliseconds: `retry-after-ms`, or `retry-after` as seconds or as a date. */
export function retryAfterMs(headers: ResponseHeaders, now: number = Date.now()): number | undefined {
  const milliseconds = amount(headers['retry-after-ms'])
  if (milliseconds !== undefined) return milliseconds
  const plain = headers['retry-after']
  const inSeconds = amount(plain)
  if (inSeconds !== undefined) return inSeconds * 1000
  if (typeof plain !== 'string') return undefined
  const date = Date.parse(plain)
  return Number.isNaN(date) ? undefined : Math.max(0, date - now)
}

function amount(value: string | string[] | undefined): number | undefined {
  if (typeof value !== 'string' || value.trim() === '') return undefined
  const number = Number(value)
  return Number.isFinite(number) && number >= 0 ? number : undefined
}

/** How long the server that refused asks us to wait; undefined if it does not say. */
export function retryAfterOf(error: unknown): number | undefined {
  const asked = error instanceof MillraceError ? error.data['retryAfterMs'] : undefined
  return typeof asked === 'number' ? asked : undefined
}
