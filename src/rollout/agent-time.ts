import type { MillraceError } from '../errors/index.ts'
import type { CallHooks, SentCall } from '../inference/index.ts'
import { AbortScope, type SpentTime } from '../kit/index.ts'
import type { Limits } from '../schema/index.ts'
import { BudgetMeter } from './budget-meter.ts'
import type { Tally } from './tally.ts'
import { timeUp } from './time-up.ts'

/** A function of the environment that an agent's time may go to. */
type Hook = 'setup' | 'update' | 'contextPolicy'

/** The agent whose time it is. */
export interface TimeHost {
  readonly tally: Tally
  readonly tools: { readonly doing: string | undefined }
}

/**
 * The time of one agent. It stands still while model calls wait, which they tell here; and when it is up, the agent's signal
 * aborts, with what the agent was at.
 */
export class AgentTime implements CallHooks {
  readonly budget: BudgetMeter
  readonly scope: AbortScope
  /** What was at work when the time was up. */
  cutOffIn: string | undefined
  readonly #host: TimeHost
  readonly #parent: AgentTime | undefined
  /** The function of the environment that is at work; tools say it themselves. */
  #hook: Hook | undefined
  /** By this agent or a child of it. */
  #lastSent: SentCall | undefined
  /** Why it waits for the model, if a backend has failed since something was sent. */
  #heldUpBy: MillraceError | undefined

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

  /** It has ended: its clocks stand still, and its parent's signal is let go of. */
  stop(): void {
    this.budget.stop()
    this.scope[Symbol.dispose]()
  }

  /** A function of the environment's at work: if the time is up meanwhile, it was spent there. */
  async spentIn<Result>(hook: Hook, work: () => Result | Promise<Result>): Promise<Result> {
    this.#hook = hook
    try {
      return await work()
    } finally {
      this.#hook = undefined
    }
  }

  /** A call waits for capacity: that is not the agent's time. */
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

  onSend(call: SentCall): void {
    this.#lastSent = call
    this.#heldUpBy = undefined
    this.#parent?.onSend(call)
  }

  #onSpent(what: SpentTime): void {
    const { tally, tools } = this.#host
    const lastSent = this.#lastSent
    // There will be no reply to count it with.
    if (lastSent?.isUnheard && !this.signal.aborted) tally.modelMs += performance.now() - lastSent.sentAt
    const { isWaiting } = this.budget
    const asking = lastSent?.isUnderWay && !isWaiting ? `a model call to ${lastSent.backend}` : undefined
    const doing = this.#hook ?? tools.doing ?? asking
    this.cutOffIn = doing
    // While it is set up its time stands still as well.
    const waitsForModel = isWaiting && this.#hook !== 'setup'
    this.scope.abort(timeUp(what, { lastSent, doing, waitsForModel, heldUpBy: this.#heldUpBy }))
  }
}
