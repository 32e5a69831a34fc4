import type { BackendReply } from '../../apis/index.ts'
import type { MillraceError } from '../../errors/index.ts'
import { maxTimerMs, timerMs } from '../../kit/index.ts'
import type { RoutedExperts, TokenRecord, VersionSpan } from '../../schema/index.ts'
import { joinTokens } from './compose.ts'
import type { EmittedRecord } from './emitted-log.ts'
import type { ReplyFault } from './faults.ts'
import { type Token, type TokenPart, words } from './tokens.ts'

/** Timers may fire this much early. */
const slackMs = 1

/** The client that asked: for the log of emitted replies, and for requests to abort the reply. */
interface Origin extends Pick<EmittedRecord, 'session' | 'replyId' | 'api'> {
  readonly requestName?: string
}

export interface ReplyHost {
  readonly engine: SimulatedEngine
  readonly weightVersion: string | undefined
  onEmitted(record: EmittedRecord): void
}

/** The faults that break a reply. `hang` sends nothing at all, and `malformed` garbles a complete reply. */
export type BreakingFault = Exclude<ReplyFault, 'hang' | 'malformed'>

/** Takes a reply: a stream in pieces, any other at its end. A method that returns false takes no more until `resume` is called. */
export interface ReplyConsumer {
  onStart(version: string | undefined): boolean
  onGroup(group: TokenGroup, version: string | undefined, isGarbled: boolean): boolean
  onPause(): void
  onEnd(sample: Sample): void
  /** The reply breaks here. After any fault but `stall` it is over. */
  onFault(fault: BreakingFault): void
}

export interface PacedReplyOptions {
  readonly delivery: Delivery
  readonly origin: Origin
  readonly isStream: boolean
}

/** A reply in the making, at its pace. Its clock stands still while the engine is paused. */
export class PacedReply {
  readonly names: readonly string[]
  readonly #host: ReplyHost
  readonly #origin: Origin
  readonly #delivery: Delivery
  readonly #isStream: boolean
  readonly #consumer: ReplyConsumer
  readonly #tokens: readonly Token[]
  readonly #tokenMs: number
  /** The pieces of a stream, except for a last one that is only the end marker: that leaves with the end. */
  readonly #groups: readonly TokenGroup[]
  /** How many pieces leave before a fault strikes; a garbled one is the last of them. */
  readonly #breakAfter: number
  readonly #versions: VersionSpan[] = []
  #left = 0
  /** The piece that leaves next; -1 is the start of a stream. */
  #next: number
  #state: 'frozen' | 'running' | 'over' = 'frozen'
  #isStalled = false
  #isBlocked = false
  #wasResumed = false
  #ranMs = 0
  #runningSince = 0
  #timer: NodeJS.Timeout | undefined

  constructor(host: ReplyHost, { delivery, origin, isStream }: PacedReplyOptions, consumer: ReplyConsumer) {
    this.#host = host
    this.#origin = origin
    this.#delivery = delivery
    this.#isStream = isStream
    this.#consumer = consumer
    this.#tokens = tokensOf(delivery)
    this.#tokenMs = (delivery.totalMs - delivery.firstTokenMs) / this.#tokens.length
    const groups = isStream ? groupTokens(this.#tokens, delivery.groupSize) : []
    this.#groups = groups.filter(({ part }) => part !== 'marker')
    this.#breakAfter = Math.min(this.#groups.length, Math.max(1, Math.floor(this.#groups.length * delivery.luck)))
    this.#next = isStream ? -1 : 0
    this.names = [origin.replyId, ...(origin.requestName === undefined ? [] : [origin.requestName])]
  }

  get isFrozen(): boolean {
    return this.#state === 'frozen'
  }

  start(): void {
    this.#host.engine.add(this)
  }

  freeze(): void {
    if (this.#state !== 'running') return
    this.#ranMs = this.#elapsedMs
    this.#state = 'frozen'
    clearTimeout(this.#timer)
  }

  thaw(): void {
    if (this.#state !== 'frozen') return
    this.#state = 'running'
    this.#runningSince = performance.now()
    this.#advance()
  }

  abort(): void {
    if (this.#state === 'over') return
    if (!this.#isStream && this.#tokenMs > 0) {
      const sampled = Math.floor((this.#elapsedMs - this.#delivery.firstTokenMs) / this.#tokenMs)
      this.#emit(Math.max(0, Math.min(sampled, this.#tokens.length - 1)))
    }
    this.#end('abort')
    this.#consumer.onEnd(this.soFar())
  }

  /** Ends the reply because nobody wants it any more. Tokens that left before count as emitted. */
  stop(): void {
    this.#end(null)
  }

  resume(): void {
    this.#wasResumed = true
    if (!this.#isBlocked) return
    this.#isBlocked = false
    if (this.#state === 'running') this.#advance()
  }

  soFar(): Sample {
    return partialSample(this.#delivery, this.#tokens.slice(0, this.#left), this.#versions)
  }

  /** Does what is due, and is called again for what is not due yet. Never called while the clock stands still. */
  readonly #advance = (): void => {
    const { fault, firstTokenMs, totalMs, luck, reply } = this.#delivery
    if (fault === 'hang' || this.#isStalled) {
      // A timer is set all the same: a process in which somebody waits must not end.
      this.#isDue(this.#elapsedMs + maxTimerMs)
      return
    }
    while (!this.#isBlocked && this.#next < this.#groups.length) {
      const group = this.#groups[this.#next]
      if (!this.#isDue(group ? this.#dueMs(group.to) : firstTokenMs)) {
        this.#consumer.onPause()
        return
      }
      if (group && this.#next === this.#breakAfter && isBreaking(fault)) break
      this.#hand(group)
      if (this.#state !== 'running') return
    }
    if (this.#isBlocked) return
    if (isBreaking(fault)) {
      if (this.#isDue(this.#isStream ? 0 : totalMs * luck)) this.#break(fault)
    } else if (this.#isDue(this.#isStream ? this.#dueMs(this.#tokens.length) : totalMs)) {
      this.#emit(this.#tokens.length)
      this.#end(fault ? null : reply.finishReason)
      this.#consumer.onEnd(completeSample(this.#delivery, this.#tokens, this.#versions))
    } else {
      this.#consumer.onPause()
    }
  }

  get #elapsedMs(): number {
    return this.#state === 'running' ? this.#ranMs + performance.now() - this.#runningSince : this.#ranMs
  }

  #dueMs(tokens: number): number {
    return this.#delivery.firstTokenMs + (tokens - 1) * this.#tokenMs
  }

  #isDue(ms: number): boolean {
    const waitMs = ms - this.#elapsedMs
    if (waitMs <= slackMs) return true
    this.#timer = setTimeout(this.#advance, timerMs(waitMs))
    return false
  }

  #hand(group: TokenGroup | undefined): void {
    const version = this.#host.weightVersion
    this.#next += 1
    this.#wasResumed = false
    let takesMore: boolean
    if (group) {
      const isGarbled = this.#delivery.fault === 'malformed' && this.#next === this.#breakAfter
      // A garbled piece is emitted after the consumer took it: a consumer that gives up on it has got nothing of it.
      if (!isGarbled) this.#emit(group.to)
      takesMore = this.#consumer.onGroup(group, version, isGarbled)
      if (isGarbled) this.#emit(group.to)
    } else {
      takesMore = this.#consumer.onStart(version)
    }
    this.#isBlocked = !takesMore && !this.#wasResumed
  }

  #break(fault: BreakingFault): void {
    if (fault !== 'stall') this.#end(null)
    this.#isStalled = true
    this.#consumer.onFault(fault === 'cut' ? this.#wayToCut() : fault)
    if (this.#state === 'running') this.#advance()
  }

  /** Two of three cut streams lose their connection; the third ends in order, but does not say that it is complete. */
  #wayToCut(): BreakingFault {
    return this.#isStream && (this.#delivery.luck * 1000) % 3 >= 2 ? 'quietEnd' : 'kill'
  }

  #emit(count: number): void {
    const version = this.#host.weightVersion
    if (version !== undefined && count > this.#left && this.#versions.at(-1)?.version !== version) {
      this.#versions.push({ from: this.#left, version })
    }
    this.#left = count
  }

  /** Ends the reply and lets go of everything; nothing happens to it after that. */
  #end(finish: EmittedRecord['finish']): void {
    if (this.#state === 'over') return
    this.#state = 'over'
    clearTimeout(this.#timer)
    this.#host.engine.remove(this)
    const { tokens } = this.#delivery.reply
    if (!tokens) return
    const { session, replyId, api } = this.#origin
    this.#host.onEmitted({ session, replyId, api, finish, versions: this.#versions, tokens, count: this.#left })
  }
}

function isBreaking(fault: ReplyFault | undefined): fault is BreakingFault {
  return fault !== undefined && fault !== 'hang' && fault !== 'malformed'
}

/** Neighbouring tokens of one part of a reply. Markers go with the text after them; they add ids but no text. */
export interface TokenGroup {
  readonly part: TokenPart
  readonly call: number
  readonly text: string
  /** The group has the tokens from `from` up to, not including, `to`. */
  readonly from: number
  readonly to: number
}

/** Splits a reply into the pieces of a stream, of at most `size` tokens of text; a tool's name is never split. */
export function groupTokens(tokens: readonly Token[], size: number): TokenGroup[] {
  const groups: TokenGroup[] = []
  let from = 0
  let index = 0
  while (index < tokens.length) {
    while (tokens[index]?.part === 'marker') index += 1
    const first = tokens[index]
    if (!first) break
    let text = ''
    const limit = first.part === 'name' ? Number.POSITIVE_INFINITY : index + size
    for (; index < limit; index += 1) {
      const token = tokens[index]
      if (!token || token.part !== first.part || token.call !== first.call) break
      text += token.piece
    }
    groups.push({ part: first.part, call: first.call, text, from, to: index })
    from = index
  }
  if (from < tokens.length) groups.push({ part: 'marker', call: -1, text: '', from, to: tokens.length })
  return groups
}

export type SimulatorAnswer = Refusal | Delivery

interface Refusal {
  readonly kind: 'refusal'
  readonly error: MillraceError
}

export interface Delivery {
  readonly kind: 'delivery'
  /** The reply. Its tokens carry the weights' version of now; a reply that takes time is stamped anew as it leaves. */
  readonly reply: BackendReply
  /** The reply's tokens, if they had to be made anyway; see `tokensOf`. */
  readonly tokens: readonly Token[] | undefined
  readonly firstTokenMs: number
  readonly totalMs: number
  readonly groupSize: number
  readonly fault: ReplyFault | undefined
  /** In (0, 1): where the reply breaks if a fault cuts it, and how. */
  readonly luck: number
  /** The name of this delivery: the same question asked again gets the same reply under another name. */
  readonly id: string
}

/** Every token of a reply, the template's markers included, in the order in which they were sampled. */
export function tokensOf(delivery: Delivery): readonly Token[] {
  return delivery.tokens ?? words.sample(delivery.reply.message, 0)
}

export interface Sample {
  /** An aborted reply has the finish reason `length`, as none of our four reasons fits. */
  readonly reply: BackendReply
  readonly tokens: readonly Token[]
  readonly versions: readonly VersionSpan[]
  readonly isAborted: boolean
}

export function completeSample(delivery: Delivery, tokens: readonly Token[], versions: readonly VersionSpan[]): Sample {
  const { reply } = delivery
  const stamped = reply.tokens ? { ...reply, tokens: withVersions(reply.tokens, versions) } : reply
  return { reply: stamped, tokens, versions, isAborted: false }
}

function partialSample(delivery: Delivery, tokens: readonly Token[], versions: readonly VersionSpan[]): Sample {
  const { reply } = delivery
  const count = tokens.length
  const reasoning = tokens.reduce((sum, token) => sum + (token.part === 'reasoning' ? 1 : 0), 0)
  const partial: BackendReply = {
    message: joinTokens(tokens, reply.message.tool_calls ?? []),
    finishReason: 'length',
    usage: { ...reply.usage, output: count, reasoning },
    ...(reply.firstTokenMs === undefined ? {} : { firstTokenMs: reply.firstTokenMs }),
    ...(reply.tokens ? { tokens: withVersions(firstTokens(reply.tokens, count), versions) } : {}),
  }
  return { reply: partial, tokens, versions, isAborted: true }
}

function firstTokens(record: TokenRecord, count: number): TokenRecord {
  const { ids, logprobs, routedExperts } = record
  return {
    ...record,
    ids: ids.slice(0, count),
    logprobs: logprobs.slice(0, count),
    ...(routedExperts ? { routedExperts: firstExperts(routedExperts, count) } : {}),
  }
}

function firstExperts({ shape, experts }: RoutedExperts, count: number): RoutedExperts {
  const [tokens = 0, ...rest] = shape
  const perToken = tokens === 0 ? 0 : experts.length / tokens
  return { shape: [count, ...rest], experts: experts.slice(0, count * perToken) }
}

function withVersions(record: TokenRecord, versions: readonly VersionSpan[]): TokenRecord {
  const { version: _then, ...unstamped } = record
  const [first] = versions
  if (!first) return unstamped
  return { ...unstamped, version: first.version, ...(versions.length > 1 ? { versionSpans: versions } : {}) }
}

/** A pause ends replies in the making (`abort`), freezes them (`keep`) or lets them end (`wait`); later ones are held. */
export const pauseModes = ['abort', 'keep', 'wait'] as const

export type PauseMode = (typeof pauseModes)[number]

interface Drain {
  readonly left: Set<PacedReply>
  readonly resolve: () => void
}

/** The replies in the making, and the switch with which weight updates pause them. One job per request in flight. */
export class SimulatedEngine {
  readonly #jobs = new Set<PacedReply>()
  readonly #drains = new Set<Drain>()
  #isPaused = false
  #isAsleep = false

  get isPaused(): boolean {
    return this.#isPaused
  }

  get isAsleep(): boolean {
    return this.#isAsleep
  }

  /** Whether new replies have to wait. */
  get isHolding(): boolean {
    return this.#isPaused || this.#isAsleep
  }

  add(job: PacedReply): void {
    this.#jobs.add(job)
    if (!this.isHolding) job.thaw()
  }

  remove(job: PacedReply): void {
    this.#jobs.delete(job)
    for (const drain of this.#drains) {
      drain.left.delete(job)
      if (drain.left.size === 0) this.#end(drain)
    }
  }

  /** Resolves when the engine stands still: at once, or in mode `wait` when the running jobs have ended. */
  pause(mode: PauseMode): Promise<void> {
    this.#isPaused = true
    if (mode === 'abort') this.abort()
    if (mode === 'keep') for (const job of this.#jobs) job.freeze()
    const left = new Set([...this.#jobs].filter((job) => !job.isFrozen))
    if (left.size === 0) return Promise.resolve()
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#drains.add({ left, resolve })
    return promise
  }

  resume(): void {
    this.#isPaused = false
    this.#thawAll()
  }

  /** Its memory is given back, and with it every reply in the making. */
  sleep(): void {
    this.#isAsleep = true
    this.abort()
  }

  wakeUp(): void {
    this.#isAsleep = false
    this.#thawAll()
  }

  abort(names?: readonly string[]): number {
    const jobs = [...this.#jobs].filter((job) => !names || job.names.some((name) => names.includes(name)))
    for (const job of jobs) job.abort()
    return jobs.length
  }

  #thawAll(): void {
    if (this.isHolding) return
    for (const job of this.#jobs) job.thaw()
  }

  #end(drain: Drain): void {
    this.#drains.delete(drain)
    drain.resolve()
  }
}
