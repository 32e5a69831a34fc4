import { availableParallelism } from 'node:os'
import { loadEnvironment } from '../env/index.ts'
import { MillraceError } from '../errors/index.ts'
import { closeAll, LoopLag, machineShare, shareWith } from '../kit/index.ts'
import { InlineExecutor } from '../rollout/index.ts'
import { JournalClient } from '../store/index.ts'
import { startTelemetry, type Telemetry } from '../telemetry/index.ts'
import { CallHandler } from './_call-handler.ts'
import { reportErrors } from './_report-errors.ts'
import type { SupervisorLink } from './_supervisor-link.ts'
import type { WorkerReport } from './worker-messages.ts'

const statusEveryMs = 250

/** The parts a worker carries rollouts out with, and measures itself with. */
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
    await closeAll(parts)
  } finally {
    // An environment may have left a timer or a socket open; nothing of ours is.
    process.exit()
  }
}
