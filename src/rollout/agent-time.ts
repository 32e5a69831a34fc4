import type { MillraceError } from '../errors/index.ts'
import type { CallHooks, SentCall } from '../inference/index.ts'
import { AbortScope, type SpentTime } from '../kit/index.ts'
import type { Limits } from '../schema/index.ts'
import { BudgetMeter } from './budget-meter.ts'
import type { Tally } from './tally.ts'
import { timeUp } from './time-up.ts'

/** A function of the environment that an agent's time may go to. */
type Hook = 'setup' | 'update' | 'contextPolicy'

/** The agent whose time this is. */
export interface TimeHost {
  readonly tally: Tally
  readonly tools: { readonly doing: string | undefined }
}

/**
 * The time of one agent. The clock stands still while model calls wait, which they report here. When the time is up, the agent's
 * signal aborts, and its reason says what the agent was doing.
 */
export class AgentTime implements CallHooks {
  readonly budget: BudgetMeter
  readonly scope: AbortScope
  /** What was at work when the time was up. */
  cutOffIn: string | undefined
  readonly #host: TimeHost
  readonly #parent: AgentTime | undefined
  /** The function of the environment that is at work; tools that are at work are asked of the host. */
  #hook: Hook | undefined
  /** The last model call that this agent or a child of it sent. */
  #lastSent: SentCall | undefined
  /** Why the agent waits for the model, if a backend has failed since the last call was sent. */
  #heldUpBy: MillraceError | undefined
  /** Why calls of this agent, or of a child of it, wait for tool servers: one reason for each call. */
  readonly #awayBecause: MillraceError[] = []

  constructor(
    host: TimeHost,
    { limits, signal, parent }: { limits: Limits; signal: AbortSignal; parent: AgentTime | undefined },
  ) {
    this.#host = host
    this.#parent = parent
    this.scope = new AbortScope(signal)
    // A child started by the reward does not live on what the agent left over: that may be nothing.
    const parentBudget = parent?.budget.isStopped ? undefined : parent?.budget
    this.budget = new BudgetMeter({ limits, parent: parentBudget, onSpent: (what) => this.#onSpent(what) })
  }

  get signal(): AbortSignal {
    return this.scope.signal
  }

  /** The agent has ended: stops its clocks and lets go of its parent's signal. */
  stop(): void {
    this.budget.stop()
    this.scope[Symbol.dispose]()
  }

  /** Runs a function of the environment: if the time is up meanwhile, the error says that it was spent there. */
  async spentIn<Result>(hook: Hook, work: () => Result | Promise<Result>): Promise<Result> {
    this.#hook = hook
    try {
      return await work()
    } finally {
      this.#hook = undefined
    }
  }

  /** A call waits for capacity: that does not count as the agent's time. */
  onWaitStart(): void {
    this.budget.startWait()
  }

  onWaitEnd(): void {
    this.budget.endWait()
  }

  onFailedTry(ms: number, error: MillraceError): void {
    this.onParked(error)
    this.budget.giveBack(ms)
  }

  onParked(error: MillraceError): void {
    this.#heldUpBy = error
    this.#parent?.onParked(error)
  }

  /** A call waits for a tool server to be opened again. Returns what to call when the wait is over. */
  onServerAway(why: MillraceError): () => void {
    this.budget.startWait()
    const forget = this.#noteAway(why)
    return () => {
      this.budget.endWait()
      forget()
    }
  }

  #noteAway(why: MillraceError): () => void {
    const forgetAbove = this.#parent ? this.#parent.#noteAway(why) : undefined
    this.#awayBecause.push(why)
    return () => {
      this.#awayBecause.splice(this.#awayBecause.indexOf(why), 1)
      forgetAbove?.()
    }
  }

  onSend(call: SentCall): void {
    this.#lastSent = call
    this.#heldUpBy = undefined
    this.#parent?.onSend(call)
  }

  #onSpent(what: SpentTime): void {
    const { tally, tools } = this.#host
    const lastSent = this.#lastSent
    // No reply will come whose time could be counted.
    if (lastSent?.isUnheard && !this.signal.aborted) tally.modelMs += performance.now() - lastSent.sentAt
    const { isWaiting } = this.budget
    const asking = lastSent?.isUnderWay && !isWaiting ? `a model call to ${lastSent.backend}` : undefined
    const doing = this.#hook ?? tools.doing ?? asking
    this.cutOffIn = doing
    // What is known last says most.
    const serverAway = this.#awayBecause.at(-1)
    // During `setup` the clock stands still as well, without a wait for the model.
    const waitsForModel = isWaiting && this.#hook !== 'setup' && !serverAway
    this.scope.abort(timeUp(what, { lastSent, doing, waitsForModel, heldUpBy: this.#heldUpBy, serverAway }))
  }
}
