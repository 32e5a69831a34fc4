import type { Evaluation, RunInfo, Summary } from '../../../eval/index.ts'
import type { RolloutRecord } from '../../../schema/index.ts'
import { ForeignOutput } from '../../process/foreign-output.ts'
import type { CommandIo } from '../../process/io.ts'
import type { EvalOutput } from './eval-output.ts'
import { StartupNotice } from './_startup-notice.ts'

const progressMs = 5000

/** Output for programs: stdout has only JSON objects, one per line, told apart by `type`. */
export class JsonOutput implements EvalOutput {
  readonly #io: CommandIo
  readonly #evaluation: Evaluation
  readonly #isQuiet: boolean
  readonly #startup: StartupNotice | undefined
  readonly #foreign: ForeignOutput
  #timer: NodeJS.Timeout | undefined

  constructor(io: CommandIo, evaluation: Evaluation, options: { readonly quiet: boolean }) {
    this.#io = io
    this.#evaluation = evaluation
    this.#isQuiet = options.quiet
    this.#startup = options.quiet ? undefined : new StartupNotice(evaluation, (text) => this.note(text))
    this.#foreign = new ForeignOutput([io.stdout], (line) => this.note(line))
  }

  start(info: RunInfo): void {
    this.#startup?.[Symbol.dispose]()
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
    this.#startup?.[Symbol.dispose]()
    clearInterval(this.#timer)
    this.#timer = undefined
  }

  end(summary: Summary): void {
    this.quiet()
    void this.#write({ type: 'summary', ...summary })
  }

  [Symbol.dispose](): void {
    this.quiet()
    this.#foreign[Symbol.dispose]()
  }

  #writeProgress(): Promise<void> | undefined {
    return this.#write({ type: 'progress', ...this.#evaluation.progress() })
  }

  /** Writes an object as a line. Missing figures (an interval of one task) are NaN, which JSON writes as null. */
  #write(value: object): Promise<void> | undefined {
    return this.#io.stdout.line(JSON.stringify(value))
  }
}
