import type { Budget } from '../env/index.ts'
import { MillraceError } from '../errors/index.ts'
import type { Limits, Usage } from '../schema/index.ts'

export type SpentLimit = 'turns' | 'tokens' | 'cost' | 'time' | 'wall'

/**
 * One rollout's budget, and a node of the budget tree: what a child spends its parents spend too, and nobody has more
 * left than the one above. The working clock stands still while any call of this rollout waits for capacity.
 */
export class BudgetMeter implements Budget {
  readonly #limits: Limits
  readonly #parent: BudgetMeter | undefined
  readonly #startedAt = performance.now()
  readonly #onSpent: (limit: SpentLimit) => void
  #turns = 0
  #tokens = 0
  #costUsd = 0
  #stoppedAt: number | undefined
  #carriedWorkingMs = 0
  #waiting = 0
  #waitStartedAt = 0
  #waitedMs = 0
  #workTimer: NodeJS.Timeout | undefined
  readonly #wallTimer: NodeJS.Timeout

  constructor(options: {
    limits: Limits
    /** Called when time runs out; everything else is noticed at the next turn. */
    onSpent: (limit: SpentLimit) => void
    parent?: BudgetMeter | undefined
  }) {
    this.#limits = options.limits
    this.#parent = options.parent
    this.#onSpent = options.onSpent
    this.#armWorkTimer()
    // The tail belongs to reward and teardown; a child has none of its own.
    const wallMs = options.parent ? options.parent.wallMsLeft : options.limits.wallTimeoutMs - options.limits.tailMs
    this.#wallTimer = setTimeout(() => this.#onSpent('wall'), Math.min(Math.max(wallMs, 0), maxTimerMs))
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
    return Math.max(0, Math.min(this.#limits.timeoutMs - this.workingMs, this.#parent?.workingMsLeft ?? Infinity))
  }

  get wallMsLeft(): number {
    if (this.#parent) return this.#parent.wallMsLeft
    return Math.max(0, this.#limits.wallTimeoutMs - this.#limits.tailMs - (this.#now - this.#startedAt))
  }

  get workingMs(): number {
    return this.#carriedWorkingMs + this.#now - this.#startedAt - this.waitedMs
  }

  get waitedMs(): number {
    return this.#waitedMs + (this.#waiting > 0 ? this.#now - this.#waitStartedAt : 0)
  }

  get costUsd(): number {
    return this.#costUsd
  }

  get isStopped(): boolean {
    return this.#stoppedAt !== undefined
  }

  /** Called before each turn. */
  startTurn(): void {
    if (this.turnsLeft === 0) throw spent('turns', `all ${this.#limits.maxTurns} turns are used`)
    if (this.tokensLeft === 0) throw spent('tokens', `all ${this.#limits.maxTokens} tokens are used`)
    if (this.costLeftUsd === 0) throw spent('cost', `all of $${this.#limits.maxCostUsd} is spent`)
    this.#countTurn()
  }

  charge(usage: Usage, cost: number | null): void {
    this.#tokens += usage.output
    this.#costUsd += cost ?? 0
    this.#parent?.charge(usage, cost)
  }

  /** Time that an earlier sitting had worked on what is now only read back. Wall time starts anew; this does not. */
  carryWorkingTime(ms: number): void {
    this.#carriedWorkingMs += ms
    if (this.#waiting === 0) {
      clearTimeout(this.#workTimer)
      this.#armWorkTimer()
    }
    this.#parent?.carryWorkingTime(ms)
  }

  readonly startWait = (): void => {
    this.#waiting += 1
    if (this.#waiting > 1) return
    this.#waitStartedAt = performance.now()
    clearTimeout(this.#workTimer)
    this.#parent?.startWait()
  }

  readonly endWait = (): void => {
    this.#waiting -= 1
    if (this.#waiting > 0) return
    this.#waitedMs += this.#now - this.#waitStartedAt
    this.#armWorkTimer()
    this.#parent?.endWait()
  }

  /** The agent has ended: its clocks stop, its timers are gone. */
  stop(): void {
    this.#stoppedAt ??= performance.now()
    clearTimeout(this.#workTimer)
    clearTimeout(this.#wallTimer)
  }

  get #now(): number {
    return this.#stoppedAt ?? performance.now()
  }

  #countTurn(): void {
    this.#turns += 1
    if (this.#parent) this.#parent.#countTurn()
  }

  #armWorkTimer(): void {
    // A call that was waiting when the agent was stopped ends its wait afterwards.
    if (this.#stoppedAt !== undefined) return
    const leftMs = this.#limits.timeoutMs - this.workingMs
    this.#workTimer = setTimeout(() => this.#onSpent('time'), Math.min(Math.max(leftMs, 0), maxTimerMs))
  }
}

/** setTimeout fires at once for anything longer than this. */
const maxTimerMs = 2 ** 31 - 1

export function spent(limit: SpentLimit, message: string): MillraceError {
  return new MillraceError('budget_exhausted', message, { data: { limit } })
}
