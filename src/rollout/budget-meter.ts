import type { Budget } from '../env/index.ts'
import { MillraceError } from '../errors/index.ts'
import { maxTimerMs, StopClock } from '../kit/index.ts'
import type { Limits, Usage } from '../schema/index.ts'
import type { KeptChild } from './kept-children.ts'

export type SpentLimit = 'turns' | 'tokens' | 'cost' | 'time' | 'wall'

/**
 * One rollout's budget, and a node of the budget tree: what a child spends its parents spend too, and nobody has more
 * left than the one above. The working clock stands still while any call of this rollout waits for capacity.
 */
export class BudgetMeter implements Budget {
  readonly #limits: Limits
  readonly #parent: BudgetMeter | undefined
  readonly #work: StopClock
  /** The clock on the wall never stands still. */
  readonly #wallEndsAt: number
  readonly #wallTimer: NodeJS.Timeout
  #stoppedAt: number | undefined
  #turns = 0
  #tokens = 0
  #costUsd = 0

  constructor(options: {
    limits: Limits
    /** Called when time runs out; everything else is noticed at the next turn. */
    onSpent: (limit: SpentLimit) => void
    parent?: BudgetMeter | undefined
  }) {
    const { limits, parent, onSpent } = options
    this.#limits = limits
    this.#parent = parent
    this.#work = new StopClock(limits.timeoutMs, () => onSpent('time'))
    // The tail belongs to reward and teardown; a child has none of its own.
    const wallMs = Math.max(0, parent ? parent.wallMsLeft : limits.wallTimeoutMs - limits.tailMs)
    this.#wallEndsAt = performance.now() + wallMs
    this.#wallTimer = setTimeout(onSpent, Math.min(wallMs, maxTimerMs), 'wall')
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
    return Math.max(0, Math.min(this.#work.leftMs, this.#parent?.workingMsLeft ?? Infinity))
  }

  get wallMsLeft(): number {
    return Math.max(0, this.#wallEndsAt - (this.#stoppedAt ?? performance.now()))
  }

  get workingMs(): number {
    return this.#work.elapsedMs
  }

  get waitedMs(): number {
    return this.#work.waitedMs
  }

  /** The agent has ended: its clocks stand still for good, its timers are gone. */
  get isStopped(): boolean {
    return this.#stoppedAt !== undefined
  }

  stop(): void {
    this.#work.stop()
    clearTimeout(this.#wallTimer)
    this.#stoppedAt ??= performance.now()
  }

  /** Called before each turn. */
  startTurn(): void {
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

  /** Time that an earlier sitting had worked on what is now only read back. Wall time starts anew; this does not. */
  carryWorkingTime(ms: number): void {
    this.#work.carry(ms)
    this.#parent?.carryWorkingTime(ms)
  }

  /** What a child had spent that does not run again. */
  takeOver({ turns, usage, cost, modelMs }: KeptChild): void {
    this.charge(usage, cost)
    this.carryWorkingTime(modelMs)
    this.#countTurns(turns)
  }

  startWait(): void {
    this.#work.startWait()
    this.#parent?.startWait()
  }

  endWait(): void {
    this.#work.endWait()
    this.#parent?.endWait()
  }

  /** A try at a backend failed: the time it took was not the policy's. */
  giveBack(ms: number): void {
    this.#work.giveBack(ms)
    this.#parent?.giveBack(ms)
  }

  #countTurns(count: number): void {
    this.#turns += count
    if (this.#parent) this.#parent.#countTurns(count)
  }
}

export function spent(limit: SpentLimit, message: string): MillraceError {
  return new MillraceError('budget_exhausted', message, { data: { limit } })
}
