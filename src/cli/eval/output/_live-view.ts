import type { EventEmitter } from 'node:events'
import { fitText, textWidth } from '../../format/text-width.ts'
import type { Output } from '../../process/output.ts'

const hideCursor = '\u001b[?25l'
const showCursor = '\u001b[?25h'
const clearLine = '\u001b[K'
const clearBelow = '\u001b[J'

/**
 * A few lines at the bottom of a terminal, redrawn in place. They are written over, not cleared and written again: that
 * would flicker, and a multiplexer would keep every frame in its history. The cursor is hidden while they are there and
 * comes back however the process ends, short of being killed outright.
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
    // A line that wraps would be two, and moving up would then stop one short; so would one more line than there are rows.
    const { columns, rows } = this.#output
    const fitted = lines.slice(0, Math.max(1, rows - 1)).map((line) => fitText(line, columns - 1))
    const before = this.#rows()
    const text = fitted.map((line) => `${line}${clearLine}\n`).join('')
    void this.#output.write(`${hideCursor}${up(before)}${text}${before > fitted.length ? clearBelow : ''}`)
    this.#widths = fitted.map(textWidth)
  }

  /** Text that stays, above the lines; the next `draw` puts them back below it. */
  print(text: string): void {
    const before = this.#rows()
    const lines = text.split('\n').map((line) => `${line}${before > 0 ? clearLine : ''}\n`)
    void this.#output.write(`${up(before)}${lines.join('')}${before > 0 ? clearBelow : ''}`)
    this.#widths = []
  }

  /** Takes the lines away. */
  [Symbol.dispose](): void {
    if (this.#state === 'drawn') {
      const before = this.#rows()
      void this.#output.write(`${up(before)}${before > 0 ? clearBelow : ''}${showCursor}`)
      this.#events.off('exit', this.#onExit)
    }
    this.#widths = []
    this.#state = 'closed'
  }

  /** Rows of the terminal that the lines take: more than they were drawn in, if it has become narrower since. */
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
