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
import type { AgentRun } from './agent-run.ts'
import { askJudge } from './ask-judge.ts'
import { runChild } from './child-run.ts'
import type { Engine } from './engine.ts'
import type { RolloutJob } from './job.ts'

/** What a rollout and its children share. */
export interface Situation {
  readonly job: RolloutJob
  readonly identity: RolloutIdentity
  readonly task: unknown
  state: unknown
  readonly metrics: Record<string, number>
  readonly notes: Record<string, Json>
  /** How often a child with the same opening was started, so that each gets its own id. Made with the first child. */
  childIds?: Map<string, number>
}

type Context = RewardContext<unknown, unknown, unknown> & UpdateContext<unknown, unknown, unknown>

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
  readonly #run: AgentRun
  readonly #situation: Situation
  readonly #engine: Engine

  constructor(run: AgentRun, situation: Situation, engine: Engine) {
    this.#run = run
    this.#situation = situation
    this.#engine = engine
    this.rollout = situation.identity
    this.task = situation.task
    this.options = engine.options
    this.signal = run.signal
  }

  get state(): unknown {
    return this.#situation.state
  }

  get budget(): Budget {
    return this.#run.budget
  }

  get messages(): readonly Message[] {
    return this.#run.messages
  }

  get answer(): string {
    return this.#run.answer ?? ''
  }

  get child() {
    const parts = { engine: this.#engine, situation: this.#situation, parent: this.#run, signal: this.signal }
    return (request: ChildRequest): Promise<ChildResult> => runChild(request, parts)
  }

  get judge() {
    const parts = {
      engine: this.#engine,
      run: this.#run,
      attempt: this.#situation.job.attempt,
      signal: this.signal,
    }
    return (request: JudgeRequest): Promise<AssistantMessage> => askJudge(request, parts)
  }

  get metric() {
    const { metrics } = this.#situation
    return (name: string, value: number): void => {
      metrics[name] = value
    }
  }

  get note() {
    const { notes } = this.#situation
    return (name: string, value: Json): void => {
      notes[name] = value
    }
  }
}
