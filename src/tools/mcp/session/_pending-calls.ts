import { MillraceError } from '../../../errors/index.ts'
import type { PendingCall } from '../link/pending-call.ts'

/** The SDK counts its own requests on the same connection from 0. Up to 2^31 ids stay small integers everywhere. */
const firstId = 2 ** 30
const firstSize = 64
/** More calls at once on one connection are a mistake: a further call fails with `overloaded`. */
const maxPending = 65_536

/**
 * The calls that wait for an answer, by id. Ids count up, and the slot of an id is its remainder, so that there is no map that
 * churns with every call: an id whose slot is still taken by an older call is skipped, and the table doubles when it is half
 * full, which keeps such skips rare.
 */
export class PendingCalls {
  #slots: (PendingCall | undefined)[] = Array.from({ length: firstSize })
  #nextId = firstId
  #size = 0

  get size(): number {
    return this.#size
  }

  add(call: PendingCall): void {
    if (this.#size * 2 >= this.#slots.length) this.#grow()
    while (this.#slots[this.#nextId % this.#slots.length]) this.#nextId += 1
    call.id = this.#nextId
    this.#slots[call.id % this.#slots.length] = call
    this.#nextId += 1
    this.#size += 1
  }

  /** Whether the id belongs to one of our calls, answered or not. */
  static isOurs(id: unknown): id is number {
    return typeof id === 'number' && id >= firstId
  }

  find(id: number): PendingCall | undefined {
    const call = this.#slots[id % this.#slots.length]
    return call?.id === id ? call : undefined
  }

  /** Takes a call out; false if it was not there any more. Only the caller that takes a call out settles it. */
  take(call: PendingCall): boolean {
    const slot = call.id % this.#slots.length
    if (this.#slots[slot] !== call) return false
    this.#slots[slot] = undefined
    this.#size -= 1
    return true
  }

  all(): PendingCall[] {
    return this.#slots.filter((call) => call !== undefined)
  }

  /** Throws at the limit, before anything was written. */
  checkRoom(server: string): void {
    if (this.#size < maxPending) return
    throw new MillraceError(
      'overloaded',
      `${maxPending} calls wait for server '${server}' already: lower the concurrency`,
    )
  }

  #grow(): void {
    const calls = this.all()
    // Ids that differ modulo a size differ modulo twice that size, so nothing collides.
    this.#slots = Array.from({ length: this.#slots.length * 2 })
    for (const call of calls) this.#slots[call.id % this.#slots.length] = call
  }
}
