import { MillraceError } from '../../errors/index.ts'
import { backoffMs, Resource, sleep, type Backoff } from '../../kit/index.ts'
import type { BackendSurvey } from './backend-survey.ts'
import type { Finding } from './gateway-backends.ts'

/** A server that loads a model takes minutes, one that is only a little late must not be noticed. */
const schedule: Backoff = { firstMs: 500, factor: 2, maxMs: 10_000 }

/** One request for each backend. */
const defaultListMs = 10_000

/**
 * How often a backend is asked again whether its replies have tokens, if it did not say. For three minutes: the first reply of
 * vLLM on a busy machine took 40 s, because it compiles its sampler then.
 */
const maxTokenQuestions = 12

export interface BackendWatchOptions {
  readonly survey: BackendSurvey
  /** Hears of one that has answered, or serves others than before; the survey knows already what. */
  readonly onAnswer: (finding: Finding) => void
  /** Hears of one that cannot be used, when the reason is another than before. */
  readonly onProblem: (finding: Finding) => void
  /** How often those that have answered are asked for their lists. */
  readonly listMs?: number
  /**
   * Whether a backend has requests under way, or answered one within so many milliseconds. It is not asked then: requests are
   * the better sign of life, and some servers break off a reply when another request comes.
   */
  readonly isActive?: (backend: string, withinMs: number) => boolean
  /** False: backends are asked until they have answered, and not after that. */
  readonly polls?: boolean
}

/**
 * Asks each backend that has not answered again, less and less often, until it does or this is closed. One that has is asked
 * for its list from then on, while no requests go to it: a server may come back with another model, or load one.
 */
export class BackendWatch extends Resource {
  readonly #options: BackendWatchOptions
  readonly #watching: Promise<unknown>

  constructor(options: BackendWatchOptions) {
    super()
    this.#options = options
    this.#watching = Promise.all(options.survey.findings.map((_finding, place) => this.#watch(place)))
  }

  protected async onClose(): Promise<void> {
    await this.#watching
  }

  async #watch(place: number): Promise<void> {
    try {
      await this.#follow(place)
    } catch (error) {
      if (this.isClosed) return
      const backend = this.#options.survey.findings[place]?.backend ?? ''
      this.#options.onProblem({ backend, problem: MillraceError.from(error, 'internal') })
    }
  }

  async #follow(place: number): Promise<void> {
    const { survey, onAnswer, onProblem, listMs = defaultListMs, isActive, polls = true } = this.#options
    const found = (): Finding | undefined => survey.findings[place]
    let known = found()?.problem?.rawMessage
    let tries = 0
    let tokenQuestions = 0
    for (;;) {
      tries = found()?.problem ? tries + 1 : 0
      if (tries === 0 && !polls) return
      const lacksTokens = tries === 0 && survey.lacksTokenFields(place) && tokenQuestions < maxTokenQuestions
      const asked = lacksTokens ? tokenQuestions + 1 : tries
      await sleep(asked > 0 ? Math.min(backoffMs(schedule, asked), listMs) : listMs, this.closedSignal)
      if (tries === 0 && isActive?.(found()?.backend ?? '', listMs)) continue
      if (lacksTokens) tokenQuestions += 1
      else if (tries === 0 && !(await survey.saysOtherwise(place, this.closedSignal))) continue
      const finding = await survey.askAgain(place, this.closedSignal)
      if (!finding) continue
      const problem = finding.problem?.rawMessage
      if (lacksTokens && survey.lacksTokenFields(place)) continue
      if (!finding.problem) onAnswer(finding)
      else if (problem !== known) onProblem(finding)
      known = problem
    }
  }
}
