import { isJson } from '../../kit/index.ts'
import type { ChatToolCallWire } from './_chat-reply.ts'
import type { DraftCall, ReplyDraft } from './_reply-draft.ts'
import { isObject, textOrNothing } from './foreign-json.ts'

/**
 * Which call of a reply a piece of a Chat stream belongs to. Calls have their places here as they begin. A server's own numbers
 * tell them apart, and their order: some count from 1, or all blocks of a reply. Some give every call the same number: then
 * another name tells where one begins, with another id or once the call before is whole. Some give none: then an id does, too.
 */
export class CallPlaces {
  readonly #draft: ReplyDraft
  readonly #byNumber = new Map<unknown, number>()
  /** What the server itself called them; empty where it did not. */
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

  /** An id that is new begins a call; what has none goes on with the last. */
  #unnumbered(id: string): number | undefined {
    const place = id === '' ? this.#draft.toolCallCount - 1 : this.#ids.indexOf(id)
    return place === -1 ? undefined : place
  }

  /**
   * Only where there is a name, and never by its id alone: a server may give each piece of one call an id of its own, or repeat
   * its name in each, or both.
   */
  #isAnother(place: number, id: string, called: unknown): boolean {
    const { name, arguments: written }: { name?: unknown; arguments?: unknown } = isObject(called) ? called : {}
    const before = this.#draft.toolCall(place)
    const idBefore = this.#ids[place]
    if (textOrNothing(name) === undefined || before.name === '' || (id !== '' && id === idBefore)) return false
    const isNamedAnew = name !== before.name
    // No call changes both.
    if (isNamedAnew && id !== '' && idBefore) return true
    // Whatever is written after a whole object cannot be part of it.
    const isWritten = isObject(written) || (typeof written === 'string' && /\S/.test(written))
    return (isNamedAnew || isWritten) && isWhole(before)
  }
}

function isWhole({ arguments: written }: DraftCall): boolean {
  return written.trimEnd().endsWith('}') && isJson(written)
}
