import { roundedSum } from '../kit/index.ts'
import { addUsage, emptyUsage, type CallRecord, type Usage } from '../schema/index.ts'

/** What a rollout has used, its children and judges included. What a child uses, its parent has used too. */
export class Tally {
  readonly usage: Usage = emptyUsage()
  readonly judgeUsage: Usage = emptyUsage()
  readonly #parent: Tally | undefined
  toolCalls = 0
  toolErrors = 0
  children = 0
  modelMs = 0
  toolMs = 0
  #costUsd = 0
  #hasUnknownCost = false

  constructor(parent?: Tally) {
    this.#parent = parent
  }

  /** null as soon as one call's price is unknown: a sum with holes is not a sum. The same whatever order calls end in. */
  get costUsd(): number | null {
    return this.#hasUnknownCost ? null : roundedSum(this.#costUsd)
  }

  addCall(call: Pick<CallRecord, 'usage' | 'cost' | 'ms'>): void {
    addUsage(this.usage, call.usage)
    this.modelMs += call.ms
    this.#addCost(call.cost)
    this.#parent?.addCall(call)
  }

  addJudgeCall(usage: Usage, cost: number | null): void {
    addUsage(this.judgeUsage, usage)
    this.#addCost(cost)
    this.#parent?.addJudgeCall(usage, cost)
  }

  addToolCalls(calls: number, errors: number, ms: number): void {
    this.toolCalls += calls
    this.toolErrors += errors
    this.toolMs += ms
    this.#parent?.addToolCalls(calls, errors, ms)
  }

  addChild(): void {
    this.children += 1
    this.#parent?.addChild()
  }

  #addCost(cost: number | null): void {
    if (cost === null) this.#hasUnknownCost = true
    else this.#costUsd += cost
  }
}
