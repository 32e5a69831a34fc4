import type { Evaluation, RunInfo, Summary } from '../../../eval/index.ts'
import type { RolloutRecord } from '../../../schema/index.ts'
import { formatDuration } from '../../terminal/format.ts'
import type { CommandIo } from '../../terminal/io.ts'
import { UserCodeOutput } from '../../terminal/output.ts'
import { progressLine, RecentRate, startupText } from './progress-lines.ts'
import { writeSummary } from './summary-text.ts'

/** Shows a run while it goes on and at its end: on a terminal, as plain lines, or as JSON. */
export interface EvalOutput extends Disposable {
  start(info: RunInfo): void
  /** Shows a rollout's result. The promise is back-pressure. */
  rollout(record: RolloutRecord): Promise<void> | undefined
  note(text: string): void
  /** Stops showing progress: only the end is shown after that. */
  quiet(): void
  end(summary: Summary): void
}

const firstNoticeMs = 2000
const nextNoticeMs = 10_000
const progressMs = 5000

/** Output in lines: what a slow start is busy with, progress every few seconds, the results. Notices go to stderr. */
abstract class LineOutput implements EvalOutput {
  protected readonly io: CommandIo
  protected readonly evaluation: Evaluation
  protected readonly isQuiet: boolean
  protected readonly firstProgressMs: number = progressMs
  #timer: NodeJS.Timeout | undefined

  constructor(io: CommandIo, evaluation: Evaluation, options: { readonly quiet: boolean }) {
    this.io = io
    this.evaluation = evaluation
    this.isQuiet = options.quiet
    // It does not keep the process alive: a start that waits for nothing must be noticed.
    if (!this.isQuiet) this.#timer = setTimeout(this.#tellStartup, firstNoticeMs).unref()
  }

  protected abstract writeProgress(): void
  abstract rollout(record: RolloutRecord): Promise<void> | undefined
  abstract end(summary: Summary): void

  start(_info: RunInfo): void {
    this.quiet()
    if (!this.isQuiet) this.#timer = setTimeout(this.#tellProgress, this.firstProgressMs)
  }

  note(text: string): void {
    void this.io.stderr.line(text)
  }

  quiet(): void {
    clearTimeout(this.#timer)
  }

  [Symbol.dispose](): void {
    this.quiet()
  }

  readonly #tellStartup = (): void => {
    const progress = this.evaluation.progress()
    this.note(`${startupText(progress)}… (${formatDuration(progress.elapsedMs)})`)
    this.#timer = setTimeout(this.#tellStartup, nextNoticeMs).unref()
  }

  readonly #tellProgress = (): void => {
    this.writeProgress()
    this.#timer = setTimeout(this.#tellProgress, progressMs)
  }
}

export class PlainOutput extends LineOutput {
  protected override readonly firstProgressMs = 2000
  readonly #rate = new RecentRate()

  rollout(): undefined {
    return undefined
  }

  override start(info: RunInfo): void {
    super.start(info)
    for (const notice of info.notices) this.note(notice)
    if (this.isQuiet) return
    void this.io.stdout.line(`run ${info.name}`)
    this.#rate.apply(this.evaluation.progress())
  }

  protected writeProgress(): void {
    void this.io.stdout.line(progressLine(this.#rate.apply(this.evaluation.progress())))
  }

  end(summary: Summary): void {
    this.quiet()
    if (!this.isQuiet) void this.io.stdout.line(progressLine(this.evaluation.progress()))
    writeSummary(summary, this.io)
  }
}

/** Output for programs: stdout has only JSON objects, one per line, told apart by `type`. */
export class JsonOutput extends LineOutput {
  readonly #foreign = new UserCodeOutput([this.io.stdout], (line) => this.note(line))

  rollout(record: RolloutRecord): Promise<void> | undefined {
    return this.#write({ type: 'rollout', ...record, messages: undefined })
  }

  override [Symbol.dispose](): void {
    super[Symbol.dispose]()
    this.#foreign[Symbol.dispose]()
  }

  override start(info: RunInfo): void {
    super.start(info)
    const { name: run, folder, resumed, notices } = info
    const { environment, model, total } = this.evaluation.progress()
    void this.#write({ type: 'start', run, folder, environment, model, total, resumed, notices })
  }

  protected writeProgress(): void {
    void this.#write({ type: 'progress', ...this.evaluation.progress() })
  }

  end(summary: Summary): void {
    this.quiet()
    void this.#write({ type: 'summary', ...summary })
  }

  /** Writes an object as a line. Missing figures (an interval of one task) are NaN, which JSON writes as null. */
  #write(value: object): Promise<void> | undefined {
    return this.io.stdout.line(JSON.stringify(value))
  }
}
