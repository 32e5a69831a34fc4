import { MillraceError } from '../errors/index.ts'

/** How long the server that refused asks us to wait; undefined if it does not say. */
export function askedDelayMs(error: unknown): number | undefined {
  const asked = error instanceof MillraceError ? error.data['retryAfterMs'] : undefined
  return typeof asked === 'number' ? asked : undefined
}
