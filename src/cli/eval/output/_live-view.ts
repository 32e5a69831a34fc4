import type { EventEmitter } from 'node:events'
import { fitText, textWidth } from '../../format/text-width.ts'
import type { Output } from '../../process/output.ts'

const hideCursor = '\u001b[?25l'
const showCursor = '\u001b[?25h'
const clearLine = '\u001b[K'
const clearBelow = '\u001b[J'

/**
 * A few lines at the bottom of a terminal, redrawn in place. They are overwritten instead of cleared and written again: that
 * would flicker, and a multiplexer would keep every frame in its history. The cursor is hidden while the lines are there. It
 * comes back however the process ends, unless it is killed by SIGKILL.
 */
export class LiveView implements Disposable {
  readonly #output: Output
  readonly #events: Pick<EventEmitter, 'on' | 'off'>
  #state: 'idle' | 'drawn' | 'closed' = 'idle'
  /** The widths of the lines on the screen. */
  #widths: readonly number[] = []

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
    // A line that wraps would take two rows, and moving up would then stop one short; the same holds for more lines than
    // rows.
    const { columns, rows } = this.#output
    const fitted = lines.slice(0, Math.max(1, rows - 1)).map((line) => fitText(line, columns - 1))
    const before = this.#rows()
    const text = fitted.map((line) => `${line}${clearLine}\n`).join('')
    void this.#output.write(`${hideCursor}${up(before)}${text}${before > fitted.length ? clearBelow : ''}`)
    this.#widths = fitted.map(textWidth)
  }

  /** Prints text that stays above the lines; the next `draw` puts the lines back below it. */
  print(text: string): void {
    const before = this.#rows()
    const lines = text.split('\n').map((line) => `${line}${before > 0 ? clearLine : ''}\n`)
    void this.#output.write(`${up(before)}${lines.join('')}${before > 0 ? clearBelow : ''}`)
    this.#widths = []
  }

  /** Removes the lines. */
  [Symbol.dispose](): void {
    if (this.#state === 'drawn') {
      const before = this.#rows()
      void this.#output.write(`${up(before)}${before > 0 ? clearBelow : ''}${showCursor}`)
      this.#events.off('exit', this.#onExit)
    }
    this.#widths = []
    this.#state = 'closed'
  }

  /** The terminal rows that the lines take now: more than when they were drawn, if the terminal has become narrower. */
  #rows(): number {
    const { columns } = this.#output
    return this.#widths.reduce((sum, width) => sum + Math.max(1, Math.ceil(width / columns)), 0)
  }

  readonly #onExit = (): void => {
    void this.#output.write(showCursor)
  }
}

function up(rows: number): string {
  return rows === 0 ? '' : `\u001b[${rows}A\r`
}
