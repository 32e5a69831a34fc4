import type { Budget } from '../../env/index.ts'
import { MillraceError } from '../../errors/index.ts'
import type { CallHooks, SentCall } from '../../inference/index.ts'
import { AbortScope, roundedSum, type ExhaustedClock, StopClock } from '../../kit/index.ts'
import {
  type CallRecord,
  emptyUsage,
  type Limits,
  type MessageNode,
  optionalUsage,
  type ToolFault,
  type Usage,
} from '../../schema/index.ts'
import type { ToolResult } from '../../tools/index.ts'
import type { RecordedVerdict } from '../recording/recording.ts'

/** `silence`: the working time ran out in a call to a backend that hangs. */
export type ExhaustedLimit = 'turns' | 'tokens' | 'cost' | 'time' | 'silence' | 'wall'

/** A node of the budget tree: what a child spends its parents spend too, and no node has more left than they have. */
export class BudgetMeter implements Budget {
  readonly #limits: Limits
  readonly #parent: BudgetMeter | undefined
  readonly #clock: StopClock
  #turns = 0
  #tokens = 0
  #costUsd = 0

  constructor(options: {
    limits: Limits
    /** Called when time runs out; every other limit is noticed at the next turn. */
    onSpent: (limit: ExhaustedClock) => void
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

  startTurn(): void {
    if (this.isStopped) throw agentEndedError()
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

  /** Adds the working time of an earlier launch, whose work is only read back. Wall time starts anew; working time does not. */
  carryWorkingTime(ms: number): void {
    this.#clock.carry(ms)
    this.#parent?.carryWorkingTime(ms)
  }

  chargeRecalled({ usage, cost }: CallRecord): void {
    this.#countTurn()
    this.charge(usage, cost)
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

  #countTurn(): void {
    this.#turns += 1
    if (this.#parent) this.#parent.#countTurn()
  }
}

export function agentEndedError(): MillraceError {
  return new MillraceError('cancelled', 'the agent has ended, so its calls are refused')
}

export function spent(limit: ExhaustedLimit, message: string): MillraceError {
  return new MillraceError('budget_exhausted', message, { data: { limit } })
}

type Hook = 'setup' | 'update' | 'contextPolicy' | 'verify'

export interface TimeHost {
  readonly tally: Tally
  readonly tools: { readonly doing: string | undefined }
}

/** The time of one agent. When it is up, the agent's signal aborts, and its reason says what the agent was doing. */
export class AgentTime implements CallHooks {
  readonly budget: BudgetMeter
  readonly scope: AbortScope
  cutOffIn: string | undefined
  readonly #host: TimeHost
  readonly #parent: AgentTime | undefined
  /** The function of the environment that is at work; tools that are at work are asked of the host. */
  #hook: Hook | undefined
  #lastSent: SentCall | undefined
  /** Why the agent waits for the model, if a backend has failed since the last call was sent. */
  #waitsBecauseOf: MillraceError | undefined
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
    this.#waitsBecauseOf = error
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
    this.#waitsBecauseOf = undefined
    this.#parent?.onSend(call)
  }

  #onSpent(what: ExhaustedClock): void {
    const { tally, tools } = this.#host
    const lastSent = this.#lastSent
    // No reply will come whose time could be counted.
    if (lastSent?.isSilent && !this.signal.aborted) tally.modelMs += performance.now() - lastSent.sentAt
    const { isWaiting } = this.budget
    const asking = lastSent?.isUnderWay && !isWaiting ? `a model call to ${lastSent.backend}` : undefined
    const doing = this.#hook ?? tools.doing ?? asking
    this.cutOffIn = doing
    // What is known last says most.
    const serverAway = this.#awayBecause.at(-1)
    // During `setup` the clock stands still as well, without a wait for the model.
    const waitsForModel = isWaiting && this.#hook !== 'setup' && !serverAway
    this.scope.abort(
      timeoutError(what, { lastSent, doing, waitsForModel, waitsBecauseOf: this.#waitsBecauseOf, serverAway }),
    )
  }
}

/** A reward for time that ran out while a backend hangs would teach the model something about our servers. */
export function timeoutError(
  what: ExhaustedClock,
  {
    lastSent,
    doing,
    waitsForModel,
    waitsBecauseOf,
    serverAway,
  }: {
    readonly lastSent: SentCall | undefined
    readonly doing: string | undefined
    readonly waitsForModel: boolean
    readonly waitsBecauseOf: MillraceError | undefined
    readonly serverAway?: MillraceError | undefined
  },
): MillraceError {
  const where = doing === undefined ? '' : `, in ${doing}`
  if (what === 'wall') {
    const why = waitsBecauseOf
      ? ` because a backend had failed: ${waitsBecauseOf.rawMessage}`
      : ': for a limit, or for an overloaded or unreachable backend'
    const forModel = waitsForModel ? `, while it waited for the model${why}` : ''
    const waiting = serverAway ? `, while it waited for a tool server that is away: ${serverAway.rawMessage}` : forModel
    return spent('wall', `the wall-clock limit is reached${where}${waiting}`)
  }
  if (!lastSent?.isSilent) return spent('time', `its working time is used up${where}`)
  const silentS = ((performance.now() - lastSent.sentAt) / 1000).toFixed(1)
  const found = `its working time ran out after ${lastSent.backend} had sent nothing for ${silentS} s`
  const next =
    'if the model needs that long, raise --timeout (limits.timeoutMs); with "stream": true its first token shows that it is working'
  return spent('silence', `${found}. See whether the server hangs; ${next}.`)
}

export function addUsage(total: Usage, more: Readonly<Usage>): void {
  total.calls += more.calls
  total.input += more.input
  total.cachedInput += more.cachedInput
  total.output += more.output
  total.reasoning += more.reasoning
  for (const name of optionalUsage) {
    const count = more[name]
    if (count !== undefined) total[name] = (total[name] ?? 0) + count
  }
}

/** What a rollout has used, with its children and judges: what a child uses, its parent has used too. */
export class Tally {
  readonly usage: Usage = emptyUsage()
  readonly judgeUsage: Usage = emptyUsage()
  readonly #parent: Tally | undefined
  toolCalls = 0
  toolErrors = 0
  toolRepairs = 0
  /** What tools threw; made with the first fault. */
  toolFaults: ToolFaults | undefined
  /** The models that judged; made with the first verdict. */
  judgeModels: Set<string> | undefined
  children = 0
  /** As `toolMs`, counted in this launch only: what is repeated from a recording takes no time. */
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

  addJudgeCall(verdict: Pick<RecordedVerdict, 'model' | 'usage' | 'cost'>): void {
    addUsage(this.judgeUsage, verdict.usage)
    ;(this.judgeModels ??= new Set()).add(verdict.model)
    this.#addCost(verdict.cost)
    this.#parent?.addJudgeCall(verdict)
  }

  addToolCalls(results: readonly Pick<ToolResult, 'record'>[]): void {
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

  addRecalledChild(nodes: readonly MessageNode[]): void {
    this.addChild()
    for (const { call, tool, tools = tool ? [tool] : [] } of nodes) {
      if (call) this.addCall(call, true)
      if (tools.length > 0) this.addToolCalls(tools.map((record) => ({ record })))
    }
  }

  #addCost(cost: number | null): void {
    if (cost === null) this.#hasUnknownCost = true
    else this.#costUsd += cost
  }
}

/** More kinds than anybody reads; a call that fails in a further kind is counted in `toolErrors` only. */
const maxKinds = 32

/** What tools threw, counted by tool and kind; each kind keeps its first message. */
export class ToolFaults {
  readonly #faults = new Map<string, ToolFault>()

  add(fault: ToolFault): void {
    const key = `${fault.tool} ${fault.kind}`
    const known = this.#faults.get(key)
    if (known) this.#faults.set(key, { ...known, calls: known.calls + fault.calls })
    else if (this.#faults.size < maxKinds) this.#faults.set(key, fault)
  }

  list(): readonly ToolFault[] {
    return [...this.#faults.values()]
  }
}
