import { MillraceError } from '../../errors/index.ts'
import { AbortScope, ArraySet, closeAll, hash32, ownCopy, Resource, Semaphore } from '../../kit/index.ts'
import { setUp, setupFailure, tearDown } from '../../rollout/index.ts'
import type { ToolDefinition } from '../../schema/index.ts'
import { noServers, type ServerLease, type ToolResult } from '../../tools/index.ts'
import { CallOrder } from './_call-order.ts'
import { SessionContext } from './_session-context.ts'
import type { ServedTools } from './served-tools.ts'

/** Calls of one session at once; so many again wait, and what is beyond them is refused. */
const maxCalls = 64
/** Tidying up gets a moment, as at the end of a rollout. */
const tearDownMs = 10_000

export interface EnvironmentCall {
  /** As the client knows it. */
  readonly id: string
  readonly name: string
  readonly arguments: Readonly<Record<string, unknown>>
  readonly signal: AbortSignal
}

/**
 * One client's use of an environment's tools, without a model: a state of its own from `setup`, calls through the same tool
 * box that rollouts use, and `teardown` at the end.
 */
export class EnvironmentSession extends Resource {
  readonly #served: ServedTools
  readonly #lease: ServerLease | undefined
  readonly #context: SessionContext
  readonly #permits = new Semaphore(maxCalls, maxCalls)
  readonly #order = new CallOrder()
  readonly #running = new ArraySet<AbortScope>()

  private constructor(served: ServedTools, id: string, lease: ServerLease | undefined) {
    super()
    this.#served = served
    this.#lease = lease
    const { task, options } = served
    this.#context = new SessionContext({
      task: ownCopy(task.data),
      options: ownCopy(options),
      rollout: { id, attempt: 1, sample: 0, seed: hash32(task.id) },
      servers: lease ?? noServers,
      signal: this.closedSignal,
    })
  }

  /** Sets the environment up. Where that fails, or is given up, it is torn down again first. */
  static async open(
    served: ServedTools,
    { id, signal }: { id: string; signal: AbortSignal },
  ): Promise<EnvironmentSession> {
    const session = new EnvironmentSession(served, id, await served.lease(signal))
    const context = session.#context
    const { task, options, rollout, servers } = context
    try {
      context.state = await setUp(served.environment, { task, options, rollout, servers, signal })
      return session
    } catch (thrown) {
      const failure = setupFailure(thrown, signal)
      await session.close().catch(() => {})
      throw failure
    }
  }

  get name(): string {
    return this.#served.name
  }

  get description(): string | undefined {
    return this.#served.environment.description
  }

  get definitions(): readonly ToolDefinition[] {
    return this.#served.box.definitions
  }

  /**
   * One call, alone or beside others as its tool allows. What the tool does wrong is a result. Rejects with the signal's reason, with
   * `overloaded`, and with what would end an attempt.
   */
  async call({ id, name, arguments: given, signal }: EnvironmentCall): Promise<ToolResult> {
    this.throwIfClosed()
    await this.#permits.acquire(signal)
    using scope = new AbortScope(signal)
    this.#running.add(scope)
    try {
      // It may have ended while this call waited.
      this.throwIfClosed()
      const isExclusive = this.#served.environment.tools?.[name]?.exclusive === true
      const call = { id, type: 'function', function: { name, arguments: JSON.stringify(given) } } as const
      const run = (): Promise<ToolResult[]> =>
        this.#served.box.call([call], { context: this.#context, signal: scope.signal })
      const [result] = await this.#order.run(run, { isExclusive, signal: scope.signal })
      if (!result) throw new MillraceError('internal', `${name} came to no result`)
      return result
    } finally {
      this.#running.delete(scope)
      this.#permits.release()
    }
  }

  protected async onClose(): Promise<void> {
    for (const scope of this.#running) scope.abort(this.closedSignal.reason)
    await closeAll([this.#lease, { [Symbol.asyncDispose]: () => this.#tearDown() }])
  }

  async #tearDown(): Promise<void> {
    const failure = await tearDown(this.#served.environment, this.#context, {
      untilMs: performance.now() + tearDownMs,
    })
    if (failure) throw failure
  }
}
