import { MillraceError } from '../errors/index.ts'
import { thrownBy } from '../kit/index.ts'
import type { Usage } from '../schema/index.ts'

/** What a backend resolved with, before anybody has looked: its types are only what somebody's own code promises. */
interface UncheckedReply {
  readonly message?: { readonly role?: unknown; readonly content?: unknown } | null
  readonly usage?: Partial<Usage> | null
}

/** Why a try failed. Somebody's own backend may throw anything, such as what `fetch` throws. */
export function tryFailure(thrown: unknown, backend: string): MillraceError {
  return thrown instanceof MillraceError ? thrown : thrownBy(`the backend ${backend}`, thrown, 'model_server_error')
}

/**
 * Why nothing can be done with a reply, or undefined. Only what the rest of the program cannot do without: a message of
 * the assistant, and numbers to count.
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
  // Beside tool calls many leave it out.
  const { content = null } = message
  if (typeof content !== 'string' && content !== null) return 'a message whose content is neither text nor null'
  const { calls = NaN, input = NaN, cachedInput = NaN, output = NaN, reasoning = NaN } = usage ?? {}
  // One sum instead of five checks: whatever is no number spoils it.
  if (!Number.isFinite(calls + input + cachedInput + output + reasoning)) {
    return 'a reply whose usage has no number for each of calls, input, cachedInput, output and reasoning'
  }
  return undefined
}
