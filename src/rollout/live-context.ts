import type {
  Budget,
  ChildRequest,
  ChildResult,
  JudgeRequest,
  RewardContext,
  RolloutIdentity,
  UpdateContext,
} from '../env/index.ts'
import type { AssistantMessage, Json, Message, Outcome } from '../schema/index.ts'
import type { Situation } from './situation.ts'

type Context = RewardContext<unknown, unknown, unknown> & UpdateContext<unknown, unknown, unknown>

/** What a context needs of the agent run it belongs to. */
export interface ContextHost {
  readonly budget: Budget
  readonly messages: readonly Message[]
  readonly answer: string | null
  startChild(request: ChildRequest, signal: AbortSignal): Promise<ChildResult>
  askJudge(request: JudgeRequest, signal: AbortSignal): Promise<AssistantMessage>
}

/**
 * What an environment's functions get from a running rollout. One object per agent run; the reward sees it last, with the
 * outcome filled in. Functions are bound, because authors take them out of it by destructuring; and made when they are
 * asked for, because most rollouts ask for none.
 */
export class LiveContext implements Context {
  readonly rollout: RolloutIdentity
  readonly task: unknown
  readonly options: unknown
  reply: AssistantMessage = { role: 'assistant', content: null }
  outcome: Outcome = 'completed'
  truncated = false
  signal: AbortSignal
  readonly #host: ContextHost
  readonly #situation: Situation

  constructor(host: ContextHost, parts: { situation: Situation; options: unknown; signal: AbortSignal }) {
    this.#host = host
    this.#situation = parts.situation
    this.rollout = parts.situation.identity
    this.task = parts.situation.task
    this.options = parts.options
    this.signal = parts.signal
  }

  get state(): unknown {
    return this.#situation.state
  }

  get budget(): Budget {
    return this.#host.budget
  }

  get messages(): readonly Message[] {
    return this.#host.messages
  }

  get answer(): string {
    return this.#host.answer ?? ''
  }

  get child() {
    return (request: ChildRequest): Promise<ChildResult> => this.#host.startChild(request, this.signal)
  }

  get judge() {
    return (request: JudgeRequest): Promise<AssistantMessage> => this.#host.askJudge(request, this.signal)
  }

  get metric() {
    return (name: string, value: number): void => {
      this.#situation.metrics[name] = value
    }
  }

  get note() {
    return (name: string, value: Json): void => {
      this.#situation.notes[name] = value
    }
  }
}
