import { MillraceError } from '../../errors/index.ts'
import type { Source } from '../wire/source.ts'
import type { ClockLimit, ReplyClockLimits } from './_reply-clock.ts'

/** The error of a reply that took longer than one of its limits. */
export function timeUp(
  limit: ClockLimit,
  { source, requestTimeoutMs, idleTimeoutMs }: ReplyClockLimits & { readonly source: Source },
): MillraceError {
  const data = { backend: source.backend }
  if (limit === 'stall') {
    const message = `nobody took the reply of ${source.url} for ${requestTimeoutMs} ms (requestTimeoutMs)`
    return new MillraceError('cancelled', `${message}: it was given up. Read it faster, or raise the limit.`, { data })
  }
  const what =
    limit === 'idle'
      ? `sent nothing for ${idleTimeoutMs} ms in the middle of a reply (idleTimeoutMs)`
      : `did not end its reply within ${requestTimeoutMs} ms (requestTimeoutMs)`
  return new MillraceError('model_timeout', `${source.url} ${what}. Raise the limit if the model needs longer.`, {
    data,
  })
}
