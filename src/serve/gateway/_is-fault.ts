import type { MillraceError } from '../../errors/index.ts'

/** Whether a refusal tells of something that is wrong with the gateway. Whoever is only told to come again meets no fault. */
export function isFault({ data }: MillraceError, status: number): boolean {
  return status >= 500 && data['retryAfterMs'] === undefined
}
