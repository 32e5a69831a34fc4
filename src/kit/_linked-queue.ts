/** A member of a `LinkedQueue`. */
export interface Linked<T> {
  ahead: T | undefined
  behind: T | undefined
}

/**
 * A queue, first come first served, whose members may leave at any time: a list linked through the members themselves. A
 * `Set` would do the same, at the price that `ArraySet` describes. For the same reason a member that leaves drops its links.
 */
export class LinkedQueue<T extends Linked<T>> {
  #first: T | undefined
  #last: T | undefined
  #size = 0

  get size(): number {
    return this.#size
  }

  get first(): T | undefined {
    return this.#first
  }

  /** Adds a member at the end; it must not be in a queue. */
  join(member: T): void {
    member.ahead = this.#last
    if (this.#last) this.#last.behind = member
    else this.#first = member
    this.#last = member
    this.#size += 1
  }

  /** Removes a member, which must be in this queue. */
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
