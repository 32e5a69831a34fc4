import type { Budget } from '../env/index.ts'
import { MillraceError } from '../errors/index.ts'
import { StopClock, type SpentTime } from '../kit/index.ts'
import type { Limits, Usage } from '../schema/index.ts'
import type { KeptChild } from './kept-children.ts'

/** `silence`: the working time ran out in a call to a backend that hangs. */
export type SpentLimit = 'turns' | 'tokens' | 'cost' | 'time' | 'silence' | 'wall'

/**
 * One rollout's budget, and a node of the budget tree: what a child spends its parents spend too, and no node has more left than
 * its parent. The working clock stands still while any call of this rollout waits for capacity.
 */
export class BudgetMeter implements Budget {
  readonly #limits: Limits
  readonly #parent: BudgetMeter | undefined
  readonly #clock: StopClock
  #turns = 0
  #tokens = 0
  #costUsd = 0
  /** The longest working time among the children taken over in `turn`, the last turn that had any. */
  #longestChild = { turn: 0, ms: 0 }

  constructor(options: {
    limits: Limits
    /** Called when time runs out; every other limit is noticed at the next turn. */
    onSpent: (limit: SpentTime) => void
    parent?: BudgetMeter | undefined
  }) {
    const { limits, parent, onSpent } = options
    this.#limits = limits
    this.#parent = parent
    // The tail belongs to reward and teardown; a child has none of its own.
    const wallMs = Math.max(0, parent ? parent.wallMsLeft : limits.wallTimeoutMs - limits.tailMs)
    this.#clock = new StopClock({ limitMs: limits.timeoutMs, wallMs, onSpent })
    this.#clock.watch()
  }

  get turnsLeft(): number {
    return Math.max(0, Math.min(this.#limits.maxTurns - this.#turns, this.#parent?.turnsLeft ?? Infinity))
  }

  get tokensLeft(): number {
    const own = (this.#limits.maxTokens ?? Infinity) - this.#tokens
    return Math.max(0, Math.min(own, this.#parent?.tokensLeft ?? Infinity))
  }

  get costLeftUsd(): number {
    const own = (this.#limits.maxCostUsd ?? Infinity) - this.#costUsd
    return Math.max(0, Math.min(own, this.#parent?.costLeftUsd ?? Infinity))
  }

  get workingMsLeft(): number {
    return Math.max(0, Math.min(this.#clock.leftMs, this.#parent?.workingMsLeft ?? Infinity))
  }

  get wallMsLeft(): number {
    return Math.max(0, this.#clock.wallMsLeft)
  }

  get workingMs(): number {
    return this.#clock.elapsedMs
  }

  get waitedMs(): number {
    return this.#clock.waitedMs
  }

  get isWaiting(): boolean {
    return this.#clock.isWaiting
  }

  /** The agent has ended: its clock stands still for good, its timer is gone. */
  get isStopped(): boolean {
    return this.#clock.isStopped
  }

  stop(): void {
    this.#clock.stop()
  }

  /** Called before each turn. */
  startTurn(): void {
    if (this.isStopped) throw afterTheEnd()
    if (this.turnsLeft === 0) throw spent('turns', `all ${this.#limits.maxTurns} turns are used`)
    if (this.tokensLeft === 0) throw spent('tokens', `all ${this.#limits.maxTokens} tokens are used`)
    if (this.costLeftUsd === 0) throw spent('cost', `all of $${this.#limits.maxCostUsd} is spent`)
    this.#countTurns(1)
  }

  charge(usage: Usage, cost: number | null): void {
    this.#tokens += usage.output
    this.#costUsd += cost ?? 0
    this.#parent?.charge(usage, cost)
  }

  /** Adds the working time of an earlier sitting, whose work is only read back. Wall time starts anew; working time does not. */
  carryWorkingTime(ms: number): void {
    this.#clock.carry(ms)
    this.#parent?.carryWorkingTime(ms)
  }

  /**
   * Adds what a child had spent that does not run again. The children of one turn ran side by side: the longest counts as their
   * working time.
   */
  takeOver({ turns, usage, cost, workingMs }: KeptChild, turn: number): void {
    this.charge(usage, cost)
    const { ms: carriedMs } = this.#longestChild.turn === turn ? this.#longestChild : { ms: 0 }
    if (workingMs > carriedMs) {
      this.carryWorkingTime(workingMs - carriedMs)
      this.#longestChild = { turn, ms: workingMs }
    }
    this.#countTurns(turns)
  }

  startWait(): void {
    this.#clock.startWait()
    this.#parent?.startWait()
  }

  endWait(): void {
    this.#clock.endWait()
    this.#parent?.endWait()
  }

  /** A try at a backend failed: the time it took does not count as the policy's. */
  giveBack(ms: number): void {
    this.#clock.giveBack(ms)
    this.#parent?.giveBack(ms)
  }

  #countTurns(count: number): void {
    this.#turns += count
    if (this.#parent) this.#parent.#countTurns(count)
  }
}

/** The error for an agent that goes on although it has ended. */
export function afterTheEnd(): MillraceError {
  return new MillraceError('cancelled', 'the agent has ended: what it asks for comes too late')
}

export function spent(limit: SpentLimit, message: string): MillraceError {
  return new MillraceError('budget_exhausted', message, { data: { limit } })
}
