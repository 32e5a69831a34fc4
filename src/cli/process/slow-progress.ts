import { formatCount } from '../format/count.ts'
import type { Output } from './output.ts'

const quietMs = 2000
const intervalMs = 250
/** The clock is read once per this many items. */
const stride = 256
const clearLine = '\r\u001b[K'

/** Shows a count on a terminal once work takes longer than two seconds, and removes it at the end. */
export class SlowProgress implements Disposable {
  readonly #output: Output
  readonly #what: string
  #nextAt = performance.now() + quietMs
  #count = 0
  #isShown = false

  constructor(output: Output, what: string) {
    this.#output = output
    this.#what = what
  }

  get count(): number {
    return this.#count
  }

  add(): void {
    this.#count += 1
    if (this.#count % stride !== 0 || !this.#output.isTTY) return
    const now = performance.now()
    if (now < this.#nextAt) return
    this.#nextAt = now + intervalMs
    this.#isShown = true
    void this.#output.write(`${clearLine}${this.#output.style.dim(`${this.#what}: ${formatCount(this.#count)}…`)}`)
  }

  [Symbol.dispose](): void {
    if (this.#isShown) void this.#output.write(clearLine)
    this.#isShown = false
  }
}
