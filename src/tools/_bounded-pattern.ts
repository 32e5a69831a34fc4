import { withinTime } from './_within-time.ts'

/** A text that matches, or does not, is found to in microseconds. The rest is for a machine that is busy. */
const timeoutMs = 100
/** Over no more than this, only a repetition within a repetition takes long. */
const shortChars = 1_000
const repeatedGroup = /\)[*+{]/

/**
 * A pattern of somebody else's schema, for texts that a model wrote. There are some that take twice as long with every
 * character more, and the thread serves all rollouts: such a one is stopped, once, and from then on everything matches it.
 */
export class BoundedPattern {
  readonly #pattern: RegExp
  readonly #isRisky: boolean
  #isGivenUp = false

  /** Throws what `RegExp` throws. */
  constructor(source: string, flags: string) {
    this.#pattern = new RegExp(source, flags)
    this.#isRisky = repeatedGroup.test(source)
  }

  test(text: string): boolean {
    if (this.#isGivenUp) return true
    if (!this.#isRisky && text.length <= shortChars) return this.#pattern.test(text)
    const matches = withinTime(timeoutMs, () => this.#pattern.test(text))
    this.#isGivenUp = matches === undefined
    return matches ?? true
  }

  /** By this a validator tells patterns apart. */
  toString(): string {
    return this.#pattern.toString()
  }
}
