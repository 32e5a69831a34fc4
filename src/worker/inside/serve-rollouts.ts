import { AsyncLocalStorage } from 'node:async_hooks'
import { availableParallelism } from 'node:os'
import { loadEnvironment } from '../../env/index.ts'
import { MillraceError, type WireError } from '../../errors/index.ts'
import { AbortSource, LoopLag, machineShare, errorLocation, shareWith } from '../../kit/index.ts'
import { type Executor, InlineExecutor } from '../../rollout/index.ts'
import { JournalClient } from '../../store/index.ts'
import { startTelemetry, type Telemetry } from '../../telemetry/index.ts'
import type { UnhandledError, WorkerReport, WorkerRequest, WorkerResult } from '../channel/channel.ts'
import type { SupervisorLink } from './supervisor-link.ts'

const statusEveryMs = 250

interface WorkerParts {
  readonly executor: InlineExecutor
  readonly telemetry: Telemetry | undefined
  readonly lag: LoopLag
}

/** A worker's whole life: it loads the environment, answers many calls at once, reports its status, and ends when told to. */
export async function serveRollouts(link: SupervisorLink): Promise<void> {
  reportErrors(link)
  const journal = new JournalClient(link.journal)
  try {
    const parts = await openParts(link, journal)
    const { executor, telemetry } = parts
    const report = (): void => link.send(reportOf(parts, link))
    // Reported before the last answer, so that the pool has all calls and tries when it adds them up.
    const handler = new CallHandler({ link, executor, journal, onLast: report })
    setInterval(report, statusEveryMs)
    link.onMessage((message) => {
      if (message.kind === 'abort') {
        handler.abort(message.call, message.reason)
      } else if (message.kind === 'servers-opened') {
        executor.noteOpened(message.servers)
      } else if (message.kind === 'close') {
        // Closed from the last to the first, so that what the executor does at its end is still counted and reported.
        const lastReport = { [Symbol.asyncDispose]: async () => report() }
        void end([journal, link.limits, telemetry, lastReport, executor])
      } else {
        void handler.answer(message)
      }
    })
    report()
    link.send({ kind: 'ready' })
  } catch (error) {
    link.send({ kind: 'start-failed', error: MillraceError.from(error, 'internal').toWire() })
    await journal.close()
  }
}

async function openParts({ id, start, limits }: SupervisorLink, journal: JournalClient): Promise<WorkerParts> {
  const { specifier, settings, models, workers } = start
  shareWith({ onMachine: workers, inProcess: limits.workers })
  const { environment, options } = await loadEnvironment(specifier, start.options)
  await using opened = new AsyncDisposableStack()
  const telemetry =
    start.telemetry && opened.use(startTelemetry({ env: process.env, ...start.telemetry, worker: String(id) }))
  // Measured only from here on, because loading the environment says nothing about how the worker keeps up.
  const lag = opened.use(new LoopLag())
  const executor = new InlineExecutor({
    environment,
    options,
    settings,
    models,
    env: process.env,
    journal,
    limits,
    module: { specifier, options: start.options },
    rewardThreads: machineShare(availableParallelism()),
  })
  opened.move()
  return { executor, telemetry, lag }
}

function reportOf({ executor, telemetry, lag }: WorkerParts, link: SupervisorLink): WorkerReport {
  const metrics = telemetry?.takeDelta()
  return {
    kind: 'status',
    models: executor.models(),
    lag: lag.snapshot(),
    memoryBytes: link.memoryBytes(),
    offload: executor.offload(),
    servers: executor.servers(),
    ...(metrics && { metrics }),
  }
}

async function end(parts: readonly (AsyncDisposable | undefined)[]): Promise<void> {
  try {
    await using closing = new AsyncDisposableStack()
    for (const part of parts) closing.use(part)
  } finally {
    // An environment may have left a timer or a socket open; nothing of ours is.
    process.exit()
  }
}

interface CallHandlerOptions {
  readonly link: SupervisorLink
  readonly executor: Executor
  readonly journal: JournalClient
  readonly onLast: () => void
}

export class CallHandler {
  readonly #options: CallHandlerOptions
  readonly #running = new Map<number, AbortSource>()

  constructor(options: CallHandlerOptions) {
    this.#options = options
  }

  async answer(request: WorkerRequest & { readonly call: number }): Promise<void> {
    const { call } = request
    const source = new AbortSource()
    this.#running.set(call, source)
    const work = currentCall.run(call, () => this.#run(request, source.signal))
    const reply = await work.then(
      (value) => ({ kind: 'done' as const, call, value }),
      (error: unknown) => ({ kind: 'failed' as const, call, error: MillraceError.from(error, 'internal').toWire() }),
    )
    this.#running.delete(call)
    if (this.#running.size === 0) this.#options.onLast()
    this.#send(reply)
  }

  abort(call: number, reason: WireError): void {
    this.#running.get(call)?.abort(MillraceError.fromWire(reason))
  }

  async #run(request: WorkerRequest, signal: AbortSignal): Promise<WorkerResult> {
    const { executor, journal } = this.#options
    if (request.kind === 'preflight') return await executor.preflight(signal)
    if (request.kind === 'score-group') return await executor.scoreGroup(request.job, signal)
    const result = await executor.run(request.job, signal)
    // The result is settled over another port: the nodes it depends on must be on disk before it gets there.
    await journal.durable()
    return result
  }

  #send(reply: Parameters<SupervisorLink['send']>[0] & { readonly call: number }): void {
    const { link } = this.#options
    try {
      link.send(reply)
    } catch (error) {
      // Something in the answer cannot be cloned; the caller must hear of it all the same.
      const { rawMessage } = MillraceError.from(error, 'internal')
      const failure = new MillraceError('env_invalid', `the result cannot leave its worker: ${rawMessage}`)
      link.send({ kind: 'failed', call: reply.call, error: failure.toWire() })
    }
  }
}

/** The call that the running code belongs to: a worker that its own code ends can say which call that was. */
const currentCall = new AsyncLocalStorage<number>()

/** Reports unhandled rejections. By default Node would end the worker, and all its rollouts, for one forgotten promise. */
function reportErrors(link: SupervisorLink): void {
  process.on('unhandledRejection', (reason) => link.send({ kind: 'unhandled-error', error: unhandledErrorOf(reason) }))
  let hasSpoken = false
  const writeCrashReport = (error?: UnhandledError): void => {
    const call = currentCall.getStore()
    if (hasSpoken || (call === undefined && !error)) return
    hasSpoken = true
    link.send({ kind: 'crash-report', ...(call !== undefined && { call }), ...(error && { error }) })
  }
  // After an uncaught exception nobody knows what still works, so the worker ends.
  process.on('uncaughtException', (thrown) => {
    writeCrashReport(unhandledErrorOf(thrown))
    process.exit(1)
  })
  process.on('exit', () => writeCrashReport())
}

function unhandledErrorOf(thrown: unknown): UnhandledError {
  const { rawMessage: message } = MillraceError.from(thrown, 'agent_failed')
  const place = errorLocation(thrown)
  return { message, ...(place !== undefined && { place }) }
}
