import type { Evaluation, RunInfo, Summary } from '../../../eval/index.ts'
import { ForeignOutput } from '../../process/foreign-output.ts'
import { wrapText } from '../../format/text-width.ts'
import type { CommandIo } from '../../process/io.ts'
import type { EvalOutput } from './eval-output.ts'
import { LiveView } from './_live-view.ts'
import { progressLines, startupLine } from './progress-lines.ts'
import { RecentRate } from './_recent-rate.ts'
import { writeSummary } from './write-summary.ts'

/** Eight redraws a second look smooth, and take under a tenth of a percent of a core. */
const redrawMs = 125
/** A start that is faster than this is not shown. */
const quietStartMs = 500

/** Output for a terminal: a view that is redrawn in place, then the results. */
export class LiveOutput implements EvalOutput {
  readonly #io: CommandIo
  readonly #evaluation: Evaluation
  readonly #view: LiveView
  readonly #foreign: ForeignOutput
  readonly #rate = new RecentRate()
  #state: 'starting' | 'running' | 'quiet' = 'starting'
  #redraw: NodeJS.Immediate | undefined
  readonly #timer: NodeJS.Timeout

  constructor(io: CommandIo, evaluation: Evaluation) {
    this.#io = io
    this.#evaluation = evaluation
    this.#view = new LiveView(io.stdout, io.events)
    const shared = io.stderr.isTTY ? [io.stdout, io.stderr] : [io.stdout]
    this.#foreign = new ForeignOutput(shared, (line) => this.#printForeign(line))
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
