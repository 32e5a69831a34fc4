import type { ContextView, Turn, TurnOptions } from '../env/index.ts'
import type { Session, SessionReply } from '../inference/index.ts'
import { ArraySet } from '../kit/index.ts'
import type { Message, Sampling } from '../schema/index.ts'
import { toolAnswersIn, type AgentCalls } from './agent-calls.ts'
import type { AgentTime } from './agent-time.ts'
import { ContextCopy, contextEvent, type SentCopy } from './context-copy.ts'
import type { LiveContext } from './live-context.ts'
import type { RunServices } from './run-services.ts'
import type { Tally } from './tally.ts'

/** The agent that takes the turns. */
export interface TurnsHost {
  readonly services: RunServices
  readonly session: Session
  readonly time: AgentTime
  readonly tally: Tally
  readonly tools: AgentCalls
  readonly context: Pick<LiveContext, 'child'>
  readonly trace: object | undefined
  readonly isRepeatingJournal: boolean
  record(name: string, data: object): void
}

/** The turns of one agent: what each is sent with, and what its reply costs. */
export class AgentTurns {
  /** How many turns were answered. */
  taken = 0
  /** The turns that were asked for and are not answered yet; an agent may ask for several at once. */
  readonly underWay = new ArraySet<Promise<Turn>>()
  readonly #host: TurnsHost
  readonly #sampling: Sampling
  readonly #contextCopy: ContextCopy | undefined
  /** What the context policy keeps from turn to turn; made when the policy is first asked. */
  #policyMemory: Map<string, unknown> | undefined
  /** How many tokens the prompt of the last turn had. */
  #promptTokens: number | undefined
  #openingLength = 0

  constructor(host: TurnsHost, sampling: Sampling) {
    const { contextPolicy } = host.services.environment
    this.#host = host
    this.#sampling = sampling
    this.#contextCopy = contextPolicy && new ContextCopy(contextPolicy, (copy) => this.#recordCopy(copy))
  }

  /** The conversation is opened: messages added from now on are of the agent's making. */
  noteOpening(): void {
    this.#openingLength = this.#host.session.messages.length
  }

  /** Chained, not awaited: an async frame would be held for as long as the model takes, as in `Session.turn`. */
  take(options: TurnOptions): Promise<Turn> {
    const { time } = this.#host
    try {
      time.signal.throwIfAborted()
      time.budget.startTurn()
    } catch (error) {
      return rejectedLater(error)
    }
    const asked = this.#contextCopy
      ? this.#chosenContext(this.#contextCopy).then((messages) => this.#ask(options, messages))
      : this.#ask(options)
    const turn: Promise<Turn> = asked.then(
      (reply) => {
        this.underWay.delete(turn)
        return this.#onReply(reply)
      },
      (error: unknown) => {
        this.underWay.delete(turn)
        throw error
      },
    )
    this.underWay.add(turn)
    return turn
  }

  #ask(options: TurnOptions, messages?: readonly Message[]): Promise<SessionReply> {
    const { services, session, time, tools, trace } = this.#host
    const request = {
      tools: services.callStyle.declared(options.tools ?? tools.definitions),
      sampling: this.#samplingFor(options),
      captureTokens: services.settings.captureTokens,
    }
    const { toolChoice } = options
    const asked =
      messages || toolChoice || trace
        ? { ...request, ...(messages && { messages }), ...(toolChoice && { toolChoice }), ...(trace && { trace }) }
        : request
    return session.turn(asked, time)
  }

  #onReply({ message, call, replayed }: SessionReply): Turn {
    const { services, tools, tally, time } = this.#host
    const calls = services.callStyle.callsIn(message, this.taken)
    tools.noteReply(calls)
    this.taken += 1
    this.#promptTokens = call.usage.input
    tally.addCall(call, replayed)
    time.budget.charge(call.usage, call.cost)
    if (replayed) time.budget.carryWorkingTime(call.ms)
    return { message, finishReason: call.finishReason, calls }
  }

  #samplingFor({ sampling }: TurnOptions): Sampling {
    const { tokensLeft } = this.#host.time.budget
    if (!sampling && tokensLeft === Infinity) return this.#sampling
    const merged = { ...this.#sampling, ...sampling }
    if (tokensLeft < (merged.maxTokens ?? Infinity)) merged.maxTokens = tokensLeft
    return merged
  }

  #chosenContext(copy: ContextCopy): Promise<readonly Message[]> {
    return this.#host.time.spentIn('contextPolicy', () => copy.next(this.#contextView(), this.taken))
  }

  #contextView(): ContextView {
    const { session, context, time } = this.#host
    this.#policyMemory ??= new Map()
    return {
      messages: session.messages,
      promptTokens: this.#promptTokens,
      isToolResult: (message) => message.role === 'tool' || toolAnswersIn(message) !== undefined,
      memory: this.#policyMemory,
      openingLength: this.#openingLength,
      child: (request) => context.child(request, time.signal),
      signal: time.signal,
    }
  }

  #recordCopy(copy: SentCopy): void {
    // A turn that is repeated from the journal was recorded when it was first taken.
    if (!this.#host.isRepeatingJournal) this.#host.record(contextEvent, copy)
  }
}

/** Rejects in a later turn of the event loop: an agent that retries endlessly must not block it for everybody else. */
function rejectedLater(error: unknown): Promise<never> {
  return new Promise((_resolve, reject) => {
    setImmediate(reject, error)
  })
}
