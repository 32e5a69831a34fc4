import type { Evaluation, RunInfo, Summary } from '../../eval/index.ts'
import type { CommandIo } from '../io.ts'
import type { EvalOutput } from './eval-output.ts'
import { progressLine } from './progress-lines.ts'
import { summaryText } from './summary-text.ts'

const firstMs = 2000
const intervalMs = 5000

/** Where there is no terminal: a line every few seconds, then the results. Notices go to stderr. */
export class PlainOutput implements EvalOutput {
  readonly #io: CommandIo
  readonly #evaluation: Evaluation
  readonly #isQuiet: boolean
  #timer: NodeJS.Timeout | undefined

  constructor(io: CommandIo, evaluation: Evaluation, options: { readonly quiet: boolean }) {
    this.#io = io
    this.#evaluation = evaluation
    this.#isQuiet = options.quiet
  }

  start(info: RunInfo): void {
    for (const notice of info.notices) this.note(notice)
    if (this.#isQuiet) return
    void this.#io.stdout.line(`run ${info.name}${info.resumed > 0 ? `, ${info.resumed} rollouts already ended` : ''}`)
    this.#timer = setTimeout(this.#tick, firstMs)
  }

  rollout(): undefined {
    return undefined
  }

  note(text: string): void {
    void this.#io.stderr.line(text)
  }

  quiet(): void {
    clearTimeout(this.#timer)
    this.#timer = undefined
  }

  end(summary: Summary): void {
    this.quiet()
    if (!this.#isQuiet) void this.#io.stdout.line(progressLine(this.#evaluation.progress()))
    void this.#io.stdout.write(summaryText(summary, this.#io.stdout))
  }

  [Symbol.dispose](): void {
    this.quiet()
  }

  readonly #tick = (): void => {
    void this.#io.stdout.line(progressLine(this.#evaluation.progress()))
    this.#timer = setTimeout(this.#tick, intervalMs)
  }
}
