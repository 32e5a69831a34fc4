import type { EventEmitter } from 'node:events'
import { fitText } from '../format/text-width.ts'
import type { Output } from '../output.ts'

const hideCursor = '\u001b[?25l'
const showCursor = '\u001b[?25h'
const clearBelow = '\u001b[0J'

/**
 * A few lines at the bottom of a terminal, redrawn in place. The cursor is hidden while they are there and comes back
 * however the process ends, short of being killed outright.
 */
export class LiveView implements Disposable {
  readonly #output: Output
  readonly #events: Pick<EventEmitter, 'on' | 'off'>
  #state: 'idle' | 'drawn' | 'closed' = 'idle'
  #height = 0

  constructor(output: Output, events: Pick<EventEmitter, 'on' | 'off'>) {
    this.#output = output
    this.#events = events
  }

  draw(lines: readonly string[]): void {
    if (this.#state === 'closed') return
    if (this.#state === 'idle') {
      this.#events.on('exit', this.#onExit)
      this.#state = 'drawn'
    }
    // A line that wraps would be two, and moving up would then stop one short; so would one more line than there are rows.
    const { columns, rows } = this.#output
    const fitted = lines.slice(0, Math.max(1, rows - 1)).map((line) => fitText(line, columns - 1))
    void this.#output.write(`${hideCursor}${this.#erase()}${fitted.join('\n')}\n`)
    this.#height = fitted.length
  }

  /** Text that stays, above the lines; the next `draw` puts them back below it. */
  print(text: string): void {
    void this.#output.write(`${this.#erase()}${text}\n`)
    this.#height = 0
  }

  /** Takes the lines away. */
  [Symbol.dispose](): void {
    if (this.#state === 'drawn') {
      void this.#output.write(`${this.#erase()}${showCursor}`)
      this.#events.off('exit', this.#onExit)
    }
    this.#state = 'closed'
  }

  #erase(): string {
    return this.#height === 0 ? '' : `\u001b[${this.#height}A\r${clearBelow}`
  }

  readonly #onExit = (): void => {
    void this.#output.write(showCursor)
  }
}
