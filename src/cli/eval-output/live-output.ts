import type { Evaluation, RunInfo, Summary } from '../../eval/index.ts'
import type { CommandIo } from '../io.ts'
import type { EvalOutput } from './eval-output.ts'
import { LiveView } from './live-view.ts'
import { progressLines } from './progress-lines.ts'
import { summaryText } from './summary-text.ts'

/** Eight times a second: smooth to the eye, and under a tenth of a percent of a core. */
const redrawMs = 125

/** On a terminal: a view that is redrawn in place, then the results. */
export class LiveOutput implements EvalOutput {
  readonly #io: CommandIo
  readonly #evaluation: Evaluation
  readonly #view: LiveView
  #timer: NodeJS.Timeout | undefined

  constructor(io: CommandIo, evaluation: Evaluation) {
    this.#io = io
    this.#evaluation = evaluation
    this.#view = new LiveView(io.stdout, io.events)
  }

  start(info: RunInfo): void {
    for (const notice of info.notices) this.note(notice)
    this.#timer = setInterval(() => this.#draw(), redrawMs)
    this.#draw()
  }

  rollout(): undefined {
    return undefined
  }

  note(text: string): void {
    this.#view.print(this.#io.stdout.style.warn(text))
    if (this.#timer) this.#draw()
  }

  quiet(): void {
    clearInterval(this.#timer)
    this.#timer = undefined
    this.#view[Symbol.dispose]()
  }

  end(summary: Summary): void {
    this.quiet()
    void this.#io.stdout.write(summaryText(summary, this.#io.stdout))
  }

  [Symbol.dispose](): void {
    this.quiet()
  }

  #draw(): void {
    const { columns, style } = this.#io.stdout
    this.#view.draw(progressLines(this.#evaluation.progress(), { columns, style }))
  }
}
