import { MillraceError } from '../errors/index.ts'

/** How long whoever refused asks to be left alone; undefined if it does not say. */
export function askedDelayMs(error: unknown): number | undefined {
  const asked = error instanceof MillraceError ? error.data['retryAfterMs'] : undefined
  return typeof asked === 'number' ? asked : undefined
}
