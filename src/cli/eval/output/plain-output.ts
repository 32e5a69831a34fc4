import type { Evaluation, RunInfo, Summary } from '../../../eval/index.ts'
import type { CommandIo } from '../../process/io.ts'
import type { EvalOutput } from './eval-output.ts'
import { progressLine } from './progress-lines.ts'
import { RecentRate } from './_recent-rate.ts'
import { StartupNotice } from './_startup-notice.ts'
import { writeSummary } from './write-summary.ts'

const firstMs = 2000
const intervalMs = 5000

/** Output without a terminal: a line every few seconds, then the results. Notices go to stderr. */
export class PlainOutput implements EvalOutput {
  readonly #io: CommandIo
  readonly #evaluation: Evaluation
  readonly #isQuiet: boolean
  readonly #rate = new RecentRate()
  readonly #startup: StartupNotice | undefined
  #timer: NodeJS.Timeout | undefined

  constructor(io: CommandIo, evaluation: Evaluation, options: { readonly quiet: boolean }) {
    this.#io = io
    this.#evaluation = evaluation
    this.#isQuiet = options.quiet
    this.#startup = options.quiet ? undefined : new StartupNotice(evaluation, (text) => this.note(text))
  }

  start(info: RunInfo): void {
    this.#startup?.[Symbol.dispose]()
    for (const notice of info.notices) this.note(notice)
    if (this.#isQuiet) return
    void this.#io.stdout.line(`run ${info.name}`)
    this.#rate.apply(this.#evaluation.progress())
    this.#timer = setTimeout(this.#tick, firstMs)
  }

  rollout(): undefined {
    return undefined
  }

  note(text: string): void {
    void this.#io.stderr.line(text)
  }

  quiet(): void {
    this.#startup?.[Symbol.dispose]()
    clearTimeout(this.#timer)
    this.#timer = undefined
  }

  end(summary: Summary): void {
    this.quiet()
    if (!this.#isQuiet) void this.#io.stdout.line(progressLine(this.#evaluation.progress()))
    writeSummary(summary, this.#io)
  }

  [Symbol.dispose](): void {
    this.quiet()
  }

  readonly #tick = (): void => {
    void this.#io.stdout.line(progressLine(this.#rate.apply(this.#evaluation.progress())))
    this.#timer = setTimeout(this.#tick, intervalMs)
  }
}
