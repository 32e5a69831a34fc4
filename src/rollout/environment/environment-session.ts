import type { Environment, JudgeRequest, ScoreResult } from '../../env/index.ts'
import { scoreRollout } from '../../env/index.ts'
import { MillraceError } from '../../errors/index.ts'
import { AbortScope, ArraySet, derivedSeed, Resource, Semaphore, type StopClock, withAbort } from '../../kit/index.ts'
import type { AssistantMessage, Limits, Message, Outcome, ToolDefinition } from '../../schema/index.ts'
import { endsAttempt, shortenResults, type ToolOutputs, type ToolResult } from '../../tools/index.ts'
import { type ContextHost, LiveContext } from '../agent/live-context.ts'
import type { RewardPool } from '../reward/reward-pool.ts'
import { RewardTime, scoreOnThread } from '../reward/reward-time.ts'
import type { RolloutJob } from '../schedule/executor.ts'
import { type LiveRollout, liveRolloutOf } from './live-rollout.ts'
import { setUp, setupFailure, tearDown, type TeardownContext } from './setup-teardown.ts'
import type { RolloutTools } from './toolkit.ts'

/** Calls of one session at once; so many again wait, and what is beyond them is refused. */
const maxCalls = 64
/** Tidying up gets a moment, as at the end of a rollout. */
const tearDownMs = 10_000

/** What the sessions of an environment share. A toolkit has the tools of the environment's servers, too. */
export interface SessionHost {
  readonly environment: Environment
  readonly options: unknown
  lease(job: RolloutJob, signal: AbortSignal): Promise<RolloutTools>
}

interface SessionOpening {
  readonly id: string
  readonly task: RolloutJob['task']
  /** One of this session and task, if not given. */
  readonly seed?: number
  /** Where long tool outputs are kept until the session closes. An environment that keeps them needs it. */
  readonly outputs?: ToolOutputs | undefined
  readonly signal: AbortSignal
}

interface EnvironmentCall {
  readonly id: string
  readonly name: string
  /** JSON, as whoever calls wrote it. */
  readonly arguments: string
  readonly signal: AbortSignal
}

/** A conversation that an agent had elsewhere. */
export interface Conversation {
  readonly messages: readonly Message[]
  readonly answer: string | null
  readonly outcome: Outcome
}

export interface SessionScoring {
  readonly limits: Limits
  readonly rewardPool: RewardPool | undefined
  readonly onBlocked: (component: string, lagMs: number) => void
  /** `clock` stands still while the question waits for its turn. */
  readonly askJudge: (request: JudgeRequest, clock: StopClock, signal: AbortSignal) => Promise<AssistantMessage>
  readonly signal: AbortSignal
}

export interface SessionScore extends ScoreResult {
  /** Whether a reward has looked at the state. */
  readonly hasReadState: boolean
}

/** One use of an environment without an agent of ours: `setup`, calls through the tool box, rewards if asked for, `teardown`. */
export class EnvironmentSession extends Resource {
  readonly #host: SessionHost
  readonly #tools: RolloutTools
  readonly #live: LiveRollout
  readonly #context: LiveContext
  readonly #permits = new Semaphore(maxCalls, maxCalls)
  readonly #order = new CallOrder()
  readonly #running = new ArraySet<AbortScope>()
  /** What a call ended with when its infrastructure failed: the state is not what the policy made of it. */
  #lost: MillraceError | undefined

  private constructor(host: SessionHost, live: LiveRollout) {
    super()
    this.#host = host
    this.#tools = live.tools
    this.#live = live
    this.#context = new LiveContext(contextHost(host), live, { signal: this.closedSignal })
  }

  /** Sets the environment up. Where that fails, or is abandoned, it is torn down again first. */
  static async open(host: SessionHost, opening: SessionOpening): Promise<EnvironmentSession> {
    const { id, task, seed = derivedSeed(0, task.id, id), outputs, signal } = opening
    const job = { id, attempt: 1, sample: 0, seed, task }
    const tools = await host.lease(job, signal)
    const live = liveRolloutOf(job, { tools, outputs, options: host.options })
    const session = new EnvironmentSession(host, live)
    try {
      live.state = await setUp(host.environment, { ...session.#closing, signal })
      return session
    } catch (thrown) {
      const failure = setupFailure(thrown, signal)
      await session.close().catch(() => {})
      throw failure
    }
  }

  get definitions(): readonly ToolDefinition[] {
    return this.#tools.box.definitions
  }

  /** One call. What the tool does wrong is a result; rejects with the signal's reason, `overloaded`, or what ends an attempt. */
  async call({ id, name, arguments: given, signal }: EnvironmentCall): Promise<ToolResult> {
    this.throwIfClosed()
    await this.#permits.acquire(signal)
    using scope = new AbortScope(signal)
    this.#running.add(scope)
    try {
      // It may have ended while this call waited.
      this.throwIfClosed()
      const { box } = this.#tools
      const call = { id, type: 'function', function: { name, arguments: given } } as const
      const isExclusive = box.planned(call).tool?.exclusive === true
      const run = (): Promise<ToolResult[]> => box.call([call], { context: this.#context, signal: scope.signal })
      const results = await this.#order.run(run, { isExclusive, signal: scope.signal })
      const { outputs } = this.#live
      const [result] = outputs ? await shortenResults(results, outputs) : results
      if (!result) throw new MillraceError('internal', `${name} returned no result`)
      return result
    } catch (error) {
      if (endsAttempt(error)) this.#lost ??= error
      throw error
    } finally {
      this.#running.delete(scope)
      this.#permits.release()
    }
  }

  /**
   * Scores a conversation with the state as the tools have left it. Tools may be called afterwards, and it may be scored again.
   * Rejects with what ended a call if that ends an attempt: such an end never carries a reward.
   */
  async score({ messages, answer, outcome }: Conversation, scoring: SessionScoring): Promise<SessionScore> {
    this.throwIfClosed()
    if (this.#lost) throw this.#lost
    const { limits, rewardPool, onBlocked, askJudge, signal } = scoring
    using scope = new AbortScope(signal)
    this.#running.add(scope)
    using time = new RewardTime({ limits, wallMs: limits.wallTimeoutMs, signal: scope.signal })
    const { clock } = time
    clock.watch()
    let hasReadState = false
    const own = this.#live
    // What a reward reports is no part of the session, which may be scored again.
    const live: LiveRollout = {
      ...own,
      metrics: { ...own.metrics },
      notes: { ...own.notes },
      get state() {
        hasReadState = true
        return own.state
      },
    }
    const host: ContextHost = {
      ...contextHost(this.#host),
      messages,
      answer,
      askJudge: (request, asked) => askJudge(request, clock, asked),
    }
    const context = new LiveContext(host, live, time.scope)
    context.turnToReward(outcome, time)
    try {
      const scored = scoreRollout(this.#host.environment, context, {
        onBlocked,
        ...(rewardPool && { scoreOnThread: scoreOnThread(rewardPool, { context, liveRollout: live, clock }) }),
      })
      const score = await withAbort(scored, time.scope.signal)
      return { ...score, metrics: { ...live.metrics, ...score.metrics }, hasReadState }
    } catch (error) {
      // Components that still run have nobody to score for.
      time.scope.abort(error)
      throw MillraceError.from(error, 'reward_failed')
    } finally {
      this.#running.delete(scope)
    }
  }

  protected async onClose(): Promise<void> {
    for (const scope of this.#running) scope.abort(this.closedSignal.reason)
    await using parts = new AsyncDisposableStack()
    parts.defer(async () => await this.#live.outputs?.remove())
    parts.defer(async () => await this.#tools.release?.())
    parts.defer(() => this.#tearDown())
  }

  async #tearDown(): Promise<void> {
    const failure = await tearDown(this.#host.environment, this.#closing, {
      untilMs: performance.now() + tearDownMs,
    })
    if (failure) throw failure
  }

  get #closing(): TeardownContext {
    const { task, options, identity: rollout, state } = this.#live
    return { task, options, rollout, servers: this.#context.servers, state }
  }
}

/** What the environment's functions are given without a rollout around them: no model, budget or record. */
function contextHost({ environment }: SessionHost): ContextHost {
  const refuse = (code: 'tool_failed' | 'reward_failed', why: string) => Promise.reject(new MillraceError(code, why))
  return {
    services: { environment },
    budget: {
      turnsLeft: Infinity,
      tokensLeft: Infinity,
      costLeftUsd: Infinity,
      workingMsLeft: Infinity,
      wallMsLeft: Infinity,
    },
    messages: [],
    answer: null,
    tally: { toolRepairs: 0 },
    onServerAway: () => () => {},
    startChild: () => refuse('tool_failed', 'a child rollout needs a model, but tools are served without a model'),
    askJudge: () => refuse('tool_failed', 'a judge is asked by rewards only'),
  }
}

interface QueueEntry {
  readonly isExclusive: boolean
  readonly turn: PromiseWithResolvers<void>
}

/** Lets calls run beside each other, except for exclusive ones, which run alone. First come, first served. */
class CallOrder {
  readonly #waiting: QueueEntry[] = []
  #running = 0
  #exclusiveRuns = false

  async run<T>(
    work: () => Promise<T>,
    { isExclusive, signal }: { readonly isExclusive: boolean; readonly signal: AbortSignal },
  ): Promise<T> {
    const entry: QueueEntry = { isExclusive, turn: Promise.withResolvers() }
    this.#waiting.push(entry)
    this.#admit()
    try {
      await withAbort(entry.turn.promise, signal)
      return await work()
    } finally {
      const at = this.#waiting.indexOf(entry)
      if (at === -1) this.#leave()
      else this.#waiting.splice(at, 1)
      this.#admit()
    }
  }

  #leave(): void {
    this.#running -= 1
    // It ran alone, so nobody else can have left.
    this.#exclusiveRuns = false
  }

  #admit(): void {
    for (let next = this.#waiting[0]; next; next = this.#waiting[0]) {
      if (this.#exclusiveRuns || (next.isExclusive && this.#running > 0)) return
      this.#waiting.shift()
      this.#running += 1
      this.#exclusiveRuns = next.isExclusive
      next.turn.resolve()
    }
  }
}
