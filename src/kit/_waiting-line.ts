/** A place in a `WaitingLine`. */
export interface InLine<T> {
  ahead: T | undefined
  behind: T | undefined
}

/**
 * Who waits, first come first served, where anybody may leave at any time: a list through its members themselves. A `Set` would
 * do the same, at the price that `Roster` tells of. Whoever leaves lets go of the others for the same reason.
 */
export class WaitingLine<T extends InLine<T>> {
  #first: T | undefined
  #last: T | undefined
  #size = 0

  get size(): number {
    return this.#size
  }

  get first(): T | undefined {
    return this.#first
  }

  /** Goes to the end of the line; must not be in one. */
  join(member: T): void {
    member.ahead = this.#last
    if (this.#last) this.#last.behind = member
    else this.#first = member
    this.#last = member
    this.#size += 1
  }

  /** Must be in this line. */
  leave(member: T): void {
    const { ahead, behind } = member
    if (ahead) ahead.behind = behind
    else this.#first = behind
    if (behind) behind.ahead = ahead
    else this.#last = ahead
    member.ahead = undefined
    member.behind = undefined
    this.#size -= 1
  }
}
