/** Servers that change several tools at once say so for each. */
const debounceMs = 50

/** Has a list read again some time after it was said to have changed: once for many such words, and one reading at a time. */
export class Relisting {
  readonly #read: () => Promise<void>
  #timer: NodeJS.Timeout | undefined
  #isReading = false
  #isAskedAgain = false

  /** `read` never rejects. */
  constructor(read: () => Promise<void>) {
    this.#read = read
  }

  ask(): void {
    if (this.#isReading) this.#isAskedAgain = true
    else this.#timer ??= setTimeout(() => this.#start(), debounceMs)
  }

  /** Forgets what was asked for. A reading under way ends by itself. */
  cancel(): void {
    clearTimeout(this.#timer)
    this.#timer = undefined
    this.#isAskedAgain = false
  }

  #start(): void {
    this.#timer = undefined
    this.#isReading = true
    void this.#read().finally(() => {
      this.#isReading = false
      if (!this.#isAskedAgain) return
      this.#isAskedAgain = false
      this.ask()
    })
  }
}
