/** Servers that change several tools at once send a notice for each. */
const debounceMs = 50

/** Reads a list again some time after notices of a change: once for many notices, and one reading at a time. */
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

  /** Drops pending requests. A reading under way ends by itself. */
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
