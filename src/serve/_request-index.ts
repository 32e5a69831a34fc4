import type { KnownRequest } from './known-request.ts'

/** The requests a server knows by id, oldest first. Ended ones beyond the bound are forgotten, the oldest first. */
export class RequestIndex {
  readonly #requests = new Map<string, KnownRequest>()
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
    for (const id of this.#requests.keys()) {
      if (this.#isActive(id)) continue
      this.#requests.delete(id)
      return
    }
  }
}
