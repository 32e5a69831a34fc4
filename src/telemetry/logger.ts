import { write } from 'node:fs'
import { setTimeout as pause } from 'node:timers/promises'
import { promisify } from 'node:util'
import type * as Pino from 'pino'
import type { WireError } from '../errors/index.ts'
import { type LoopLagWindow, onFirstUse, Resource, settlesWithin } from '../kit/index.ts'
import type { WorkerStatus } from '../rollout/index.ts'
import { outcomes, type RolloutRecord } from '../schema/index.ts'
import { traceIdOf } from './rollout-trace.ts'

const loadPino = onFirstUse((load) => load('pino') as typeof Pino)

export type LogLevel = 'debug' | 'info' | 'warn' | 'error' | 'silent'

/** A request to a gateway, as its log shows it. Unknown fields are left out. */
export interface LoggedRequest {
  readonly requestId?: string | undefined
  readonly session?: string | undefined
  readonly tenant?: string | undefined
  readonly model?: string | undefined
  readonly api: string
  readonly status: number
  /** `complete`, `repeated`, `counted`, `refused`, `failed` or `abandoned`. */
  readonly outcome: string
  readonly inputTokens?: number | undefined
  readonly outputTokens?: number | undefined
  readonly ms: number
  readonly firstTokenMs?: number | undefined
  readonly backend?: string | undefined
  readonly tries?: number | undefined
  readonly error?: (LoggedError & { readonly cause?: LoggedError }) | undefined
}

type LoggedError = Pick<WireError, 'code' | 'message'>

/** Writes JSON lines for machines. Closing writes the lines that wait. */
export class Logger extends Resource {
  readonly lines: Pino.Logger
  readonly #sink: LineSink

  /** `fd` is a file descriptor, standard error if not given. */
  constructor({ level = 'info', fd = 2 }: { readonly level?: LogLevel | undefined; readonly fd?: number } = {}) {
    super()
    this.#sink = new LineSink(fd)
    const base = { pid: process.pid }
    const formatters = { level: (label: string) => ({ level: label }) }
    this.lines = loadPino().pino({ level, base, formatters, timestamp: isoTime }, this.#sink)
  }

  rolloutSettled(run: string, record: Omit<RolloutRecord, 'messages'>): void {
    const { id: rollout, attempt, environment, task, sample, outcome, reward, error, turns, timing } = record
    const line = {
      run,
      rollout,
      attempt,
      trace_id: traceIdOf(run, rollout, attempt),
      environment,
      task: task.id,
      sample,
      outcome,
      reward,
      turns,
      wallMs: timing.wallMs,
      ...(error && { error: { code: error.code, message: error.message } }),
    }
    this.lines[outcomes[outcome].scored ? 'info' : 'warn'](line, 'rollout settled')
  }

  /** One line for a request that ended. A failed one is a warning: a stream that broke, too. */
  requestEnded(request: LoggedRequest): void {
    this.lines[request.status < 400 && !request.error ? 'info' : 'warn'](request, 'request')
  }

  protected onClose(): Promise<void> {
    return this.#sink.close()
  }
}

const isoTime = (): string => `,"time":"${new Date().toISOString()}"`

const writeTo = promisify(write)

/** How many characters may wait for a slow reader. Beyond this lines are dropped, and the next one that fits says how many. */
const maxWaiting = 4 * 1024 * 1024
/** How long closing waits for a reader that has stopped reading. */
const closeGraceMs = 2000
const retryAfterMs = 20
/** Lines that come within this time leave together: each write is a hop to another thread and back. */
const gatherMs = 20

/**
 * Writes lines to a descriptor, in order and off the loop. Node's own `process.stderr` blocks the loop as long as a pipe is full;
 * a run must never wait for the reader of its log.
 */
class LineSink extends Resource {
  readonly #fd: number
  #waiting: string[] = []
  #chars = 0
  #dropped = 0
  #isBroken = false
  #writing: Promise<void> | undefined

  constructor(fd: number) {
    super()
    this.#fd = fd
  }

  write(line: string): void {
    if (this.isClosed || this.#isBroken) return
    if (this.#chars + line.length > maxWaiting) {
      this.#dropped += 1
      return
    }
    if (this.#dropped > 0) {
      this.#waiting.push(`{"level":"warn","msg":"${this.#dropped} lines were dropped: they were not read in time"}\n`)
      this.#dropped = 0
    }
    this.#waiting.push(line)
    this.#chars += line.length
    this.#writing ??= this.#writeWaiting()
  }

  protected async onClose(): Promise<void> {
    if (!this.#writing) return
    await settlesWithin(this.#writing, closeGraceMs)
    this.#isBroken = true
  }

  async #writeWaiting(): Promise<void> {
    while (this.#waiting.length > 0 && !this.#isBroken) {
      if (!this.isClosed) await pause(gatherMs)
      const bytes = Buffer.from(this.#waiting.join(''))
      this.#waiting = []
      this.#chars = 0
      await this.#writeAll(bytes)
    }
    this.#writing = undefined
  }

  async #writeAll(bytes: Buffer): Promise<void> {
    for (let from = 0; from < bytes.length && !this.#isBroken;) {
      try {
        const { bytesWritten } = await writeTo(this.#fd, bytes, from)
        from += bytesWritten
      } catch (error) {
        // A full non-blocking pipe says EAGAIN. After any other error there is nobody left to read.
        if (error instanceof Error && 'code' in error && error.code === 'EAGAIN') await pause(retryAfterMs)
        else this.#isBroken = true
      }
    }
  }
}

interface LagWatchOptions {
  readonly logger: Pick<Logger, 'lines'>
  readonly thresholdMs: number
  readonly loops: () => Readonly<Record<string, LoopLagWindow>>
  readonly workers: () => readonly WorkerStatus[]
}

const lookEveryMs = 500

/** Logs when a loop starts to lag and when it stops, with what blocked it: once per crossing, however long it lasts. */
export class LagLogger implements Disposable {
  readonly #options: LagWatchOptions
  readonly #timer: NodeJS.Timeout
  /** Loops above the threshold. Bounded by the loops that exist: one that is gone is removed. */
  readonly #lagging = new Set<string>()

  constructor(options: LagWatchOptions) {
    this.#options = options
    this.#timer = setInterval(() => this.look(), lookEveryMs).unref()
  }

  look(): void {
    const { loops, workers } = this.#options
    const seen = new Set<string>()
    for (const [loop, lag] of Object.entries(loops())) {
      seen.add(loop)
      this.#judge(loop, lag.maxMs, { lag })
    }
    for (const { id, state, lag, blockedBy } of workers()) {
      const loop = `worker-${id}`
      seen.add(loop)
      // A silent worker's last figures are from before it fell silent.
      const worstMs = state === 'silent' ? Infinity : lag.maxMs
      this.#judge(loop, worstMs, { worker: id, state, lag, ...(blockedBy !== undefined && { blockedBy }) })
    }
    for (const loop of this.#lagging) if (!seen.has(loop)) this.#lagging.delete(loop)
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer)
  }

  #judge(loop: string, worstMs: number, facts: object): void {
    const { logger, thresholdMs } = this.#options
    const isLagging = worstMs > thresholdMs
    if (isLagging === this.#lagging.has(loop)) return
    if (isLagging) {
      this.#lagging.add(loop)
      logger.lines.warn({ loop, thresholdMs, ...facts }, 'event loop lags')
    } else {
      this.#lagging.delete(loop)
      logger.lines.info({ loop, thresholdMs, ...facts }, 'event loop no longer lags')
    }
  }
}
