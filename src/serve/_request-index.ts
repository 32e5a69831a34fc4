import { RingQueue } from '../kit/index.ts'
import type { KnownRequest } from './known-request.ts'

/**
 * The requests a server knows by id. Beyond the bound those that have ended are forgotten, the oldest first; one that was still active
 * when its turn came has its next turn after all others.
 */
export class RequestIndex {
  readonly #requests = new Map<string, KnownRequest>()
  /** Whose turn it is to be forgotten. Not the map's own order: it passes over everything it deleted before it comes to its oldest. */
  readonly #inLine = new RingQueue<KnownRequest>()
  readonly #maxRemembered: number
  readonly #isActive: (id: string) => boolean

  constructor(maxRemembered: number, isActive: (id: string) => boolean) {
    this.#maxRemembered = maxRemembered
    this.#isActive = isActive
  }

  get(id: string): KnownRequest | undefined {
    return this.#requests.get(id)
  }

  add(request: KnownRequest): void {
    this.#requests.set(request.id, request)
    this.#inLine.push(request)
    if (this.#requests.size > this.#maxRemembered) this.#forgetOldest()
  }

  /** It was never accepted. */
  remove(id: string): void {
    this.#requests.delete(id)
  }

  /** Newest first. */
  newest(): KnownRequest[] {
    return [...this.#requests.values()].toSorted((one, other) => other.firstTask - one.firstTask)
  }

  #forgetOldest(): void {
    // Once around at most: all of them may be active.
    for (let left = this.#inLine.size; left > 0; left -= 1) {
      const request = this.#inLine.shift()
      // One that was removed leaves its place in the queue behind.
      if (!request || this.#requests.get(request.id) !== request) continue
      if (!this.#isActive(request.id)) {
        this.#requests.delete(request.id)
        return
      }
      this.#inLine.push(request)
    }
  }
}
