import type { Evaluation, RunInfo, Summary } from '../../eval/index.ts'
import type { RolloutRecord } from '../../schema/index.ts'
import type { CommandIo } from '../io.ts'
import type { EvalOutput } from './eval-output.ts'

const progressMs = 5000

/** For programs: one JSON object a line on stdout, told apart by `type`, and nothing else there. */
export class JsonOutput implements EvalOutput {
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
    const { environment, model, total } = this.#evaluation.progress()
    void this.#write({
      type: 'start',
      run: info.name,
      folder: info.folder,
      environment,
      model,
      total,
      resumed: info.resumed,
      notices: info.notices,
    })
    if (!this.#isQuiet) this.#timer = setInterval(() => void this.#writeProgress(), progressMs)
  }

  rollout(record: RolloutRecord): Promise<void> | undefined {
    return this.#write({ type: 'rollout', ...record, messages: undefined })
  }

  note(text: string): void {
    void this.#io.stderr.line(text)
  }

  quiet(): void {
    clearInterval(this.#timer)
    this.#timer = undefined
  }

  end(summary: Summary): void {
    this.quiet()
    void this.#write({ type: 'summary', ...summary })
  }

  [Symbol.dispose](): void {
    this.quiet()
  }

  #writeProgress(): Promise<void> | undefined {
    return this.#write({ type: 'progress', ...this.#evaluation.progress() })
  }

  /** Figures that do not exist (an interval of one task) are NaN, which JSON writes as null. */
  #write(value: object): Promise<void> | undefined {
    return this.#io.stdout.line(JSON.stringify(value))
  }
}
