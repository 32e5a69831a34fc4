import { isJson } from '../../kit/index.ts'
import type { ChatToolCallWire } from './_chat-reply.ts'
import type { DraftCall, ReplyDraft } from './_reply-draft.ts'
import { isObject, textOrNothing } from './foreign-json.ts'

/**
 * Finds the tool call that a piece of a Chat stream belongs to. Calls are placed in the order in which they begin. Usually
 * the server's own numbers tell the calls apart, and give their order: some servers count from 1, or count all blocks of a
 * reply. Some servers give every call the same number: then a new call begins with another name, together with another id or
 * after the call before is whole. Some servers give no numbers: then a new id also begins a call.
 */
export class CallPlaces {
  readonly #draft: ReplyDraft
  readonly #byNumber = new Map<unknown, number>()
  /** The ids that the server gave the calls; empty for a call without one. */
  readonly #ids: string[] = []

  constructor(draft: ReplyDraft) {
    this.#draft = draft
  }

  placeOf(piece: ChatToolCallWire): number {
    const id = textOrNothing(piece.id) ?? ''
    const isNumbered = piece.index !== undefined && piece.index !== null
    const known = isNumbered ? this.#byNumber.get(piece.index) : this.#unnumbered(id)
    const isNew = known === undefined || this.#isAnother(known, id, piece.function)
    const place = isNew ? this.#draft.toolCallCount : known
    if (isNew && isNumbered) this.#byNumber.set(piece.index, place)
    if (isNew && typeof piece.index === 'number') this.#draft.toolCall(place).number = piece.index
    this.#ids[place] ||= id
    return place
  }

  /** A new id begins a call; a piece without an id belongs to the last call. */
  #unnumbered(id: string): number | undefined {
    const place = id === '' ? this.#draft.toolCallCount - 1 : this.#ids.indexOf(id)
    return place === -1 ? undefined : place
  }

  /**
   * Whether a piece begins another call. Only a piece with a name can, and a new id alone never does: a server may give each
   * piece of one call an id of its own, or repeat the name in each piece, or both.
   */
  #isAnother(place: number, id: string, called: unknown): boolean {
    const { name, arguments: written }: { name?: unknown; arguments?: unknown } = isObject(called) ? called : {}
    const before = this.#draft.toolCall(place)
    const idBefore = this.#ids[place]
    if (textOrNothing(name) === undefined || before.name === '' || (id !== '' && id === idBefore)) return false
    const isNamedAnew = name !== before.name
    // The pieces of one call never change both the name and the id.
    if (isNamedAnew && id !== '' && idBefore) return true
    // Text after a whole JSON object cannot be part of that object.
    const isWritten = isObject(written) || (typeof written === 'string' && /\S/.test(written))
    return (isNamedAnew || isWritten) && isWhole(before)
  }
}

function isWhole({ arguments: written }: DraftCall): boolean {
  return written.trimEnd().endsWith('}') && isJson(written)
}
