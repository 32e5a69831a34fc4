import { raced } from '../../kit/index.ts'

interface Place {
  readonly isExclusive: boolean
  readonly turn: PromiseWithResolvers<void>
}

/**
 * Lets calls run beside each other, except for exclusive ones, which run alone: what a turn does for the calls of a model,
 * for calls that arrive one by one. First come, first served. As many wait as there are callers, who bound themselves.
 */
export class CallOrder {
  readonly #waiting: Place[] = []
  #running = 0
  #exclusiveRuns = false

  async run<T>(
    work: () => Promise<T>,
    { isExclusive, signal }: { readonly isExclusive: boolean; readonly signal: AbortSignal },
  ): Promise<T> {
    const place: Place = { isExclusive, turn: Promise.withResolvers() }
    this.#waiting.push(place)
    this.#admit()
    try {
      await raced(place.turn.promise, signal)
      return await work()
    } finally {
      const at = this.#waiting.indexOf(place)
      if (at === -1) this.#leave()
      else this.#waiting.splice(at, 1)
      this.#admit()
    }
  }

  #leave(): void {
    this.#running -= 1
    // It ran alone, so nobody else can have left.
    this.#exclusiveRuns = false
  }

  #admit(): void {
    for (let next = this.#waiting[0]; next; next = this.#waiting[0]) {
      if (this.#exclusiveRuns || (next.isExclusive && this.#running > 0)) return
      this.#waiting.shift()
      this.#running += 1
      this.#exclusiveRuns = next.isExclusive
      next.turn.resolve()
    }
  }
}
