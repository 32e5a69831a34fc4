import { randomUUID } from 'node:crypto'
import { join } from 'node:path'
import { MillraceError } from '../../errors/index.ts'
import { AbortScope, derivedSeed, IdleResources, Resource, Semaphore } from '../../kit/index.ts'
import {
  askJudge,
  BlockedRewards,
  type Conversation,
  EnvironmentSession,
  ModelSet,
  offloadedRewardModule,
  outputsOf,
  RewardPool,
  type RolloutTerms,
  type SessionScore,
  type SessionScoring,
  Toolkit,
} from '../../rollout/index.ts'
import type { ToolResult } from '../../tools/index.ts'
import type { ServiceParts } from './service-parts.ts'

interface SessionParts extends Pick<ServiceParts, 'resolved' | 'seed' | 'store' | 'backends' | 'bounds'> {
  /** Throws if nothing new is accepted any more. */
  readonly requireOpen: () => void
}

/** What a session is set up for. */
export interface SessionTask {
  readonly task: RolloutTerms['task']
  /** JSON of the object that the task was read from. */
  readonly source: string
  /** The same for sessions that are to have the same seed. A session without a place has a seed of its own. */
  readonly place?: string | undefined
}

/** A session that is open, as far as its client has come. */
export interface SessionProgress extends SessionTask {
  stage: 'seeded' | 'called' | 'scored'
}

interface SessionCall {
  readonly name: string
  readonly arguments: string
  readonly signal: AbortSignal
}

/** Nothing of a session is part of the run: its agent is somewhere else. */
const noJournal = { append: () => {} }

/** An environment for agents that run somewhere else: they have it set up, call its tools, and have a conversation scored. */
export class ServedSessions extends Resource {
  readonly #parts: SessionParts
  readonly #toolkit: Toolkit
  readonly #sessions: IdleResources<EnvironmentSession>
  readonly #progress = new WeakMap<EnvironmentSession, SessionProgress>()
  readonly #judgePermits: Semaphore
  readonly #blocked: BlockedRewards
  #calls = 0
  /** Made with the first reward. */
  #rewardPool: RewardPool | undefined
  /** Made with the first question of a judge. */
  #models: ModelSet | undefined

  constructor(parts: SessionParts) {
    super()
    const { resolved, store, bounds } = parts
    const { environment, options } = resolved.loaded
    this.#parts = parts
    this.#toolkit = new Toolkit(environment, options, noJournal)
    this.#judgePermits = new Semaphore(resolved.settings.judgeConcurrency)
    this.#blocked = new BlockedRewards(environment.name, store.journal)
    this.#sessions = new IdleResources({
      max: bounds.maxSessions,
      idleMs: bounds.sessionIdleMs,
      // What a teardown throws is nobody's answer; the score stands.
      onFault: () => {},
    })
  }

  /** How many are open or being opened. */
  get size(): number {
    return this.#sessions.size
  }

  /** Sets the environment up for a task, in place of the session that has this id. Throws `overloaded` if there are too many, `closed` while the server drains. */
  async open(id: string, given: SessionTask, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted()
    this.#parts.requireOpen()
    const { resolved, store, seed: runSeed } = this.#parts
    const { loaded, settings } = resolved
    const { environment } = loaded
    const { wallTimeoutMs } = settings.limits
    const late = (): MillraceError =>
      new MillraceError('setup_failed', `setup took longer than the ${wallTimeoutMs} ms of limits.wallTimeoutMs`)
    using scope = new AbortScope(signal, wallTimeoutMs, late)
    // Not the session's id: the session before it may still be closing, and removes what it kept.
    const outputs = outputsOf(
      { id: randomUUID() },
      { environment, settings: { ...settings, outputsFolder: join(store.folder, 'outputs') } },
    )
    const host = { ...loaded, lease: this.#toolkit.lease.bind(this.#toolkit) }
    const { task, place } = given
    const seed = derivedSeed(runSeed, place ?? id)
    const make = (until: AbortSignal) => EnvironmentSession.open(host, { id, task, seed, outputs, signal: until })
    this.#progress.set(await this.#sessions.open(id, make, scope.signal), { ...given, stage: 'seeded' })
  }

  /** One call of a tool. What the tool does wrong is a result, and the session goes on. */
  async call(id: string, call: SessionCall): Promise<ToolResult> {
    this.#calls += 1
    this.#enter(id, 'called')
    const called = this.#sessions.use(id, (session) => session.call({ id: `call_${this.#calls}`, ...call }))
    if (!called) throw this.#unknown()
    return await called
  }

  /** Scores a conversation. Its session may go on, but makes room for others. */
  async score(id: string, conversation: Conversation, signal: AbortSignal): Promise<SessionScore> {
    this.#enter(id, 'scored')
    const scored = this.#sessions.use(id, async (session) => await session.score(conversation, this.#scoring(signal)))
    if (!scored) throw this.#unknown()
    const score = await scored
    this.#sessions.release(id)
    return score
  }

  has(id: string): boolean {
    return this.#sessions.has(id)
  }

  progress(id: string): SessionProgress | undefined {
    const session = this.#sessions.get(id)
    return session && this.#progress.get(session)
  }

  async end(id: string): Promise<void> {
    await this.#sessions.end(id)
  }

  protected async onClose(): Promise<void> {
    await using parts = new AsyncDisposableStack()
    parts.use(this.#models)
    parts.use(this.#rewardPool)
    parts.use(this.#toolkit)
    parts.use(this.#sessions)
  }

  #enter(id: string, stage: SessionProgress['stage']): void {
    const progress = this.progress(id)
    if (progress) progress.stage = stage
  }

  #scoring(signal: AbortSignal): SessionScoring {
    const { settings, loaded } = this.#parts.resolved
    const { environment, specifier, rawOptions } = loaded
    const module = offloadedRewardModule(
      environment,
      specifier === undefined ? undefined : { specifier, options: rawOptions },
    )
    if (module) this.#rewardPool ??= new RewardPool(module)
    return {
      limits: settings.limits,
      rewardPool: this.#rewardPool,
      onBlocked: this.#blocked.note,
      askJudge: (request, clock, until) =>
        askJudge(request, {
          services: {
            settings,
            judgePermits: this.#judgePermits,
            journal: noJournal,
            model: (name) => this.#model(name),
          },
          rollout: 'session',
          attempt: 1,
          tally: { addJudgeCall: () => {} },
          clock,
          trace: undefined,
          verdicts: undefined,
          signal: until,
        }),
      signal,
    }
  }

  #model(name: string): ReturnType<ModelSet['get']> {
    const { resolved, backends } = this.#parts
    const { config, env } = resolved
    const given = backends && { backends }
    this.#models ??= new ModelSet({ configs: config.models, env, onLimitChange: () => {}, ...given })
    return this.#models.get(name)
  }

  #unknown(): MillraceError {
    const idleSeconds = Math.round(this.#parts.bounds.sessionIdleMs / 1_000)
    return new MillraceError(
      'usage',
      `no environment is set up for this session: POST /seed_session first, and send the cookie of each reply with the next request; a session ends after ${idleSeconds} s without a request`,
    )
  }
}
