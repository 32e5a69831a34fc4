import type * as Pino from 'pino'
import { onFirstUse, Resource } from '../kit/index.ts'
import { outcomes, type RolloutRecord } from '../schema/index.ts'
import { LineSink } from './_line-sink.ts'
import { traceIdOf } from './rollout-trace.ts'

const loadPino = onFirstUse((load) => load('pino') as typeof Pino)

export const logLevels = ['debug', 'info', 'warn', 'error', 'silent'] as const
export type LogLevel = (typeof logLevels)[number]

export interface LoggerOptions {
  readonly level?: LogLevel
  /** A file descriptor: standard error if not given. */
  readonly fd?: number
  /** Fields that stand on every line. */
  readonly ids?: Readonly<Record<string, string>>
}

/** A request to a gateway, as its log shows it. Unknown fields are left out. */
export interface LoggedRequest {
  readonly requestId: string | undefined
  readonly session: string | undefined
  readonly tenant: string | undefined
  readonly model: string | undefined
  readonly api: string
  readonly status: number
  /** `complete`, `repeated`, `counted`, `refused`, `failed` or `abandoned`. */
  readonly outcome: string
  readonly inputTokens: number | undefined
  readonly outputTokens: number | undefined
  readonly ms: number
  readonly firstTokenMs: number | undefined
  readonly backend: string | undefined
  readonly tries: number | undefined
  readonly error: (Coded & { readonly cause?: Coded }) | undefined
}

interface Coded {
  readonly code: string
  readonly message: string
}

/** Writes JSON lines for machines. Closing writes the lines that wait. */
export class Logger extends Resource {
  readonly lines: Pino.Logger
  readonly #sink: LineSink

  constructor({ level = 'info', fd = 2, ids = {} }: LoggerOptions = {}) {
    super()
    this.#sink = new LineSink(fd)
    const base = { pid: process.pid, ...ids }
    const formatters = { level: (label: string) => ({ level: label }) }
    this.lines = loadPino().pino({ level, base, formatters, timestamp: isoTime }, this.#sink)
  }

  /** One line for a rollout's result, with all its ids and its trace id. */
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
    if (outcomes[outcome].scored) this.lines.info(line, 'rollout settled')
    else this.lines.warn(line, 'rollout settled')
  }

  /** One line for a request that ended. A failed one is a warning: a stream that broke, too. */
  requestEnded(request: LoggedRequest): void {
    if (request.status < 400 && request.error === undefined) this.lines.info(request, 'request')
    else this.lines.warn(request, 'request')
  }

  protected onClose(): Promise<void> {
    return this.#sink.close()
  }
}

const isoTime = (): string => `,"time":"${new Date().toISOString()}"`
