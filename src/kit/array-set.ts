/**
 * An unordered set for members that come and go by the thousand a second. A `Set` makes a new table
 * every so often, and V8 links each to the next; once one of them is old, all that follow survive every young collection,
 * with everything their members hold, until a full one comes. Measured on a gateway: a third of all that was allocated.
 *
 * `delete` walks over the members: about a microsecond for 4,000.
 */
export class ArraySet<T> implements Iterable<T> {
  readonly #members: T[] = []

  get size(): number {
    return this.#members.length
  }

  add(member: T): void {
    this.#members.push(member)
  }

  /** False if the member is not there. */
  delete(member: T): boolean {
    const at = this.#members.lastIndexOf(member)
    if (at === -1) return false
    const last = this.#members.pop() as T
    if (at < this.#members.length) this.#members[at] = last
    return true
  }

  /** Iterates over a copy, so that members may leave meanwhile. */
  [Symbol.iterator](): Iterator<T> {
    return Array.from(this.#members)[Symbol.iterator]()
  }
}
