import type { Evaluation, RunInfo, Summary } from '../../../eval/index.ts'
import type { CommandIo } from '../../terminal/io.ts'
import { UserCodeOutput, type Output } from '../../terminal/output.ts'
import { fitText, textWidth, wrapText } from '../../terminal/text.ts'
import type { EvalOutput } from './eval-output.ts'
import { progressLines, RecentRate, startupLine } from './progress-lines.ts'
import { writeSummary } from './summary-text.ts'

/** Eight redraws a second look smooth, and take under a tenth of a percent of a core. */
const redrawMs = 125
const quietStartMs = 500

/** Output for a terminal: a view that is redrawn in place, then the results. */
export class LiveOutput implements EvalOutput {
  readonly #io: CommandIo
  readonly #evaluation: Evaluation
  readonly #view: LiveView
  readonly #foreign: UserCodeOutput
  readonly #rate = new RecentRate()
  #state: 'starting' | 'running' | 'quiet' = 'starting'
  #redraw: NodeJS.Immediate | undefined
  readonly #timer: NodeJS.Timeout

  constructor(io: CommandIo, evaluation: Evaluation) {
    this.#io = io
    this.#evaluation = evaluation
    this.#view = new LiveView(io.stdout, io.events)
    const shared = io.stderr.isTTY ? [io.stdout, io.stderr] : [io.stdout]
    this.#foreign = new UserCodeOutput(shared, (line) => this.#printForeign(line))
    // The timer does not keep the process alive: a run that waits for nothing must be noticed.
    this.#timer = setInterval(() => this.#draw(), redrawMs).unref()
  }

  start(info: RunInfo): void {
    this.#state = 'running'
    for (const notice of info.notices) this.#print(notice)
    this.#draw()
  }

  rollout(): undefined {
    return undefined
  }

  note(text: string): void {
    this.#print(text)
    this.#draw()
  }

  quiet(): void {
    clearInterval(this.#timer)
    clearImmediate(this.#redraw)
    this.#state = 'quiet'
    this.#view[Symbol.dispose]()
    this.#foreign[Symbol.dispose]()
  }

  end(summary: Summary): void {
    this.quiet()
    writeSummary(summary, this.#io)
  }

  [Symbol.dispose](): void {
    this.quiet()
  }

  #print(text: string): void {
    const { columns, style } = this.#io.stdout
    // An indented line is a command: it is not wrapped, so that it can be copied.
    const lines = text.split('\n').flatMap((line) => (line.startsWith('  ') ? [line] : wrapText(line, columns)))
    this.#view.print(lines.map(style.warn).join('\n'))
  }

  /** Prints a line of other code. The view is redrawn once per turn of the event loop, however much was printed. */
  #printForeign(line: string): void {
    this.#view.print(line)
    if (this.#state === 'quiet') return
    this.#redraw ??= setImmediate(() => {
      this.#redraw = undefined
      this.#draw()
    })
  }

  #draw(): void {
    const { columns, style } = this.#io.stdout
    if (this.#state === 'quiet') return
    const progress = this.#evaluation.progress()
    if (this.#state === 'running') this.#view.draw(progressLines(this.#rate.apply(progress), { columns, style }))
    else if (progress.elapsedMs >= quietStartMs) this.#view.draw([startupLine(progress, { columns, style })])
  }
}

const hideCursor = '\u001b[?25l'
const showCursor = '\u001b[?25h'
const clearLine = '\u001b[K'
const clearBelow = '\u001b[J'

/**
 * A few lines at the bottom of a terminal, overwritten in place: clearing them first would flicker, and fill the history of a
 * multiplexer. The cursor is hidden meanwhile. It comes back however the process ends, unless it is killed by SIGKILL.
 */
export class LiveView implements Disposable {
  readonly #output: Output
  readonly #events: CommandIo['events']
  #state: 'idle' | 'drawn' | 'closed' = 'idle'
  /** Of the lines on the screen. */
  #widths: readonly number[] = []

  constructor(output: Output, events: CommandIo['events']) {
    this.#output = output
    this.#events = events
  }

  draw(lines: readonly string[]): void {
    if (this.#state === 'closed') return
    if (this.#state === 'idle') {
      this.#events.on('exit', this.#onExit)
      this.#state = 'drawn'
    }
    // A line that wraps would take two rows, and moving up would stop one short; so would more lines than rows.
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
