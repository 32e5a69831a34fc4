import { roundedSum } from '../kit/index.ts'
import { addUsage, emptyUsage, type CallRecord, type Usage } from '../schema/index.ts'
import type { ToolResult } from '../tools/index.ts'
import type { KeptChild } from './kept-children.ts'
import type { PaidVerdict } from './recorded-work.ts'
import { ToolFaults } from './tool-faults.ts'

/** What a rollout has used, with its children and judges: what a child uses, its parent has used too. */
export class Tally {
  readonly usage: Usage = emptyUsage()
  readonly judgeUsage: Usage = emptyUsage()
  readonly #parent: Tally | undefined
  /** How many tool calls were answered. */
  toolCalls = 0
  toolErrors = 0
  toolRepairs = 0
  /** What tools threw; made with the first fault. */
  toolFaults: ToolFaults | undefined
  /** The models that judged; made with the first verdict. */
  judgeModels: Set<string> | undefined
  children = 0
  /** As `toolMs`, counted in this sitting only: what is repeated from a recording takes no time. */
  modelMs = 0
  toolMs = 0
  #costUsd = 0
  #hasUnknownCost = false

  constructor(parent?: Tally) {
    this.#parent = parent
  }

  /** null once one call's price is unknown: a sum with holes is not a sum. Rounded, so the order of calls does not matter. */
  get costUsd(): number | null {
    return this.#hasUnknownCost ? null : roundedSum(this.#costUsd)
  }

  addCall(call: Pick<CallRecord, 'usage' | 'cost' | 'ms'>, isRepeated: boolean): void {
    addUsage(this.usage, call.usage)
    if (!isRepeated) this.modelMs += call.ms
    this.#addCost(call.cost)
    this.#parent?.addCall(call, isRepeated)
  }

  addJudgeCall(verdict: PaidVerdict): void {
    addUsage(this.judgeUsage, verdict.usage)
    ;(this.judgeModels ??= new Set()).add(verdict.model)
    this.#addCost(verdict.cost)
    this.#parent?.addJudgeCall(verdict)
  }

  addToolCalls(results: readonly ToolResult[]): void {
    this.toolCalls += results.length
    for (const { record } of results) {
      if (record.status !== 'ok') this.toolErrors += 1
      this.toolRepairs += record.repairs?.length ?? 0
      if (record.threw) (this.toolFaults ??= new ToolFaults()).add({ tool: record.name, ...record.threw, calls: 1 })
    }
    this.#parent?.addToolCalls(results)
  }

  addToolTime(ms: number): void {
    this.toolMs += ms
    this.#parent?.addToolTime(ms)
  }

  addChild(): void {
    this.children += 1
    this.#parent?.addChild()
  }

  /** Counts a child that does not run again, with all children below it. */
  addKeptChild(child: KeptChild): void {
    addUsage(this.usage, child.usage)
    addUsage(this.judgeUsage, child.judgeUsage)
    for (const model of child.judgeModels ?? []) (this.judgeModels ??= new Set()).add(model)
    this.#addCost(child.cost)
    this.toolCalls += child.toolCalls
    this.toolErrors += child.toolErrors
    this.toolRepairs += child.toolRepairs
    this.children += 1 + child.children
    this.#parent?.addKeptChild(child)
  }

  #addCost(cost: number | null): void {
    if (cost === null) this.#hasUnknownCost = true
    else this.#costUsd += cost
  }
}
