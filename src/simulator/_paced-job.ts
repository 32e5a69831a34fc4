import { timerMs } from '../kit/index.ts'
import type { VersionSpan } from '../schema/index.ts'
import { tokensOf, type Delivery } from './_simulator-answer.ts'
import type { EmittedRecord } from './_emitted-log.ts'
import type { SimulatedEngine, EngineJob } from './_simulated-engine.ts'
import { completeSample, partialSample, type Sample } from './_sample.ts'
import type { Token } from './_token-stream.ts'

/** Timers may fire this much early. */
const slackMs = 1

/** The client that asked: for the log of emitted replies, and for requests to abort the reply. */
export interface Origin extends Pick<EmittedRecord, 'session' | 'replyId' | 'api'> {
  /** The client's name for its request, if it gave one. */
  readonly requestName?: string
}

/** What a job needs from the simulator. */
export interface JobHost {
  readonly engine: SimulatedEngine
  /** The weights' version now. */
  readonly weightVersion: string | undefined
  /** Takes the record of what left, once per job. */
  onEmitted(record: EmittedRecord): void
}

/**
 * A reply in the making, at the pace that was drawn for it. Its clock stands still while the engine is paused. A token is stamped
 * with the version of the weights that is set when it leaves.
 */
export abstract class PacedJob implements EngineJob {
  readonly names: readonly string[]
  protected readonly delivery: Delivery
  protected readonly tokens: readonly Token[]
  protected readonly tokenMs: number
  readonly #host: JobHost
  readonly #origin: Origin
  readonly #versions: VersionSpan[] = []
  /** How many tokens have left. */
  #left = 0
  #state: 'frozen' | 'running' | 'over' = 'frozen'
  #ranMs = 0
  #runningSince = 0
  #timer: NodeJS.Timeout | undefined

  constructor(host: JobHost, origin: Origin, delivery: Delivery) {
    this.#host = host
    this.#origin = origin
    this.delivery = delivery
    this.tokens = tokensOf(delivery)
    this.tokenMs = (delivery.totalMs - delivery.firstTokenMs) / this.tokens.length
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
    this.#ranMs = this.elapsedMs
    this.#state = 'frozen'
    clearTimeout(this.#timer)
  }

  thaw(): void {
    if (this.#state !== 'frozen') return
    this.#state = 'running'
    this.#runningSince = performance.now()
    this.advance()
  }

  abort(): void {
    if (this.#state !== 'over') this.onAbort()
  }

  /** Ends the job because nobody wants it any more. Tokens that left before count as emitted. */
  stop(): void {
    this.end(null)
  }

  /** Does what is due, and is called again for what is not due yet. Never called while the clock stands still. */
  protected abstract advance(): void

  /** Called when the engine aborts the job; must end it. */
  protected abstract onAbort(): void

  protected get isRunning(): boolean {
    return this.#state === 'running'
  }

  protected get elapsedMs(): number {
    return this.#state === 'running' ? this.#ranMs + performance.now() - this.#runningSince : this.#ranMs
  }

  /** The version that a token is stamped with if it leaves now. */
  protected get version(): string | undefined {
    return this.#host.weightVersion
  }

  /** Whether this much running time has passed; if not, `advance` is called when it has. */
  protected isDue(ms: number): boolean {
    const waitMs = ms - this.elapsedMs
    if (waitMs <= slackMs) return true
    this.#timer = setTimeout(this.#onTimer, timerMs(waitMs))
    return false
  }

  readonly #onTimer = (): void => this.advance()

  /** Marks the tokens up to, not including, `count` as having left now. */
  protected emit(count: number): void {
    const { version } = this
    if (version !== undefined && count > this.#left && this.#versions.at(-1)?.version !== version) {
      this.#versions.push({ from: this.#left, version })
    }
    this.#left = count
  }

  protected complete(): Sample {
    return completeSample(this.delivery, this.tokens, this.#versions)
  }

  /** The tokens that have left so far, as a sample. */
  protected partial(): Sample {
    return partialSample(this.delivery, this.tokens.slice(0, this.#left), this.#versions)
  }

  /** Ends the job and lets go of everything; nothing happens to it after that. */
  protected end(finish: EmittedRecord['finish']): void {
    if (this.#state === 'over') return
    this.#state = 'over'
    clearTimeout(this.#timer)
    this.#host.engine.remove(this)
    const { tokens } = this.delivery.reply
    if (!tokens) return
    const { session, replyId, api } = this.#origin
    this.#host.onEmitted({ session, replyId, api, finish, versions: this.#versions, tokens, count: this.#left })
  }
}
