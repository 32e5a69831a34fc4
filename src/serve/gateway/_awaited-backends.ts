import { MillraceError } from '../../errors/index.ts'
import { backoffMs, Resource, sleep, type Backoff } from '../../kit/index.ts'
import type { BackendSurvey } from './backend-survey.ts'
import type { Finding } from './gateway-backends.ts'

/** A server that loads a model takes minutes, one that is only a little late must not be noticed. */
const schedule: Backoff = { firstMs: 500, factor: 2, maxMs: 10_000 }

export interface AwaitedBackendsOptions {
  readonly survey: BackendSurvey
  /** Hears of one that has answered; the survey knows already what it serves. */
  readonly onAnswer: (finding: Finding) => void
  /** Hears of one that still does not, when the reason is another than before. */
  readonly onProblem: (finding: Finding) => void
}

/** Asks each backend that has not answered again, less and less often, until it does or this is closed. */
export class AwaitedBackends extends Resource {
  readonly #options: AwaitedBackendsOptions
  readonly #asking: Promise<unknown>

  constructor(options: AwaitedBackendsOptions) {
    super()
    this.#options = options
    this.#asking = Promise.all(options.survey.awaited.map((place) => this.#await(place)))
  }

  protected async onClose(): Promise<void> {
    await this.#asking
  }

  async #await(place: number): Promise<void> {
    try {
      await this.#askUntilAnswered(place)
    } catch (error) {
      if (this.isClosed) return
      const backend = this.#options.survey.findings[place]?.backend ?? ''
      this.#options.onProblem({ backend, problem: MillraceError.from(error, 'internal') })
    }
  }

  async #askUntilAnswered(place: number): Promise<void> {
    const { survey, onAnswer, onProblem } = this.#options
    let known = survey.findings[place]?.problem?.rawMessage
    for (let tries = 1; ; tries += 1) {
      await sleep(backoffMs(schedule, tries), this.closedSignal)
      const finding = await survey.askAgain(place, this.closedSignal)
      if (!finding.problem) return onAnswer(finding)
      if (finding.problem.rawMessage === known) continue
      known = finding.problem.rawMessage
      onProblem(finding)
    }
  }
}
