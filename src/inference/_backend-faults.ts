import { MillraceError } from '../errors/index.ts'
import { thrownBy } from '../kit/index.ts'
import type { Usage } from '../schema/index.ts'

/** A backend's reply before it is checked: a backend may be a user's own code, whose types promise nothing at run time. */
interface UncheckedReply {
  readonly message?: { readonly role?: unknown; readonly content?: unknown } | null
  readonly usage?: Partial<Usage> | null
}

/** The failure of a try as a coded error. A user's own backend may throw anything, such as the errors of `fetch`. */
export function tryFailure(thrown: unknown, backend: string): MillraceError {
  return thrown instanceof MillraceError ? thrown : thrownBy(`the backend ${backend}`, thrown, 'model_server_error')
}

/**
 * Why a reply cannot be used, or undefined. Checks only what the rest of the program needs: a message of the assistant, and
 * usage that can be summed.
 */
export function replyFlaw(reply: UncheckedReply | null | undefined, backend: string): MillraceError | undefined {
  const flaw = flawOf(reply)
  if (flaw === undefined) return undefined
  return new MillraceError(
    'model_malformed',
    `the backend ${backend} resolved with ${flaw}. Its send() must resolve with a BackendReply or reject.`,
  )
}

function flawOf(reply: UncheckedReply | null | undefined): string | undefined {
  if (typeof reply !== 'object' || reply === null) return 'no reply'
  const { message, usage } = reply
  if (message?.role !== 'assistant') return 'a reply without a message of the assistant'
  // Many backends leave the content out beside tool calls.
  const { content = null } = message
  if (typeof content !== 'string' && content !== null) return 'a message whose content is neither text nor null'
  const { calls = NaN, input = NaN, cachedInput = NaN, output = NaN, reasoning = NaN } = usage ?? {}
  // One sum instead of five checks: a value that is no number makes the sum NaN.
  if (!Number.isFinite(calls + input + cachedInput + output + reasoning)) {
    return 'a reply whose usage has no number for each of calls, input, cachedInput, output and reasoning'
  }
  return undefined
}
