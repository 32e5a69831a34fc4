import { AsyncLocalStorage } from 'node:async_hooks'
import { availableParallelism } from 'node:os'
import { loadEnvironment } from '../env/index.ts'
import { MillraceError } from '../errors/index.ts'
import { AbortSource, closeAll, LoopLag, placeOfError } from '../kit/index.ts'
import { InlineExecutor, type Executor } from '../rollout/index.ts'
import { JournalClient } from '../store/index.ts'
import { startTelemetry } from '../telemetry/index.ts'
import type { SupervisorLink } from './_supervisor-link.ts'
import type { StrayError } from './stray-errors.ts'
import type { Answer, Question } from './worker-messages.ts'

const statusEveryMs = 250

/**
 * Which call the running code belongs to, through every await, timer and callback: a worker that ends by its own code can
 * then say in whose name that code ran.
 */
const currentCall = new AsyncLocalStorage<number>()

/** A worker's whole life: loads the environment, answers many calls at once, says how it is, and ends when told to. */
export async function serveRollouts(link: SupervisorLink): Promise<void> {
  reportErrors(link)
  const { start } = link
  const journal = new JournalClient(link.journal)
  const running = new Map<number, AbortSource>()
  try {
    const { environment, options } = await loadEnvironment(start.specifier, start.options)
    const { settings, models, specifier } = start
    const telemetry =
      start.telemetry && startTelemetry({ env: process.env, ...start.telemetry, worker: String(link.id) })
    // From now on: how long loading took says nothing about how it keeps up.
    const lag = new LoopLag()
    const executor = new InlineExecutor({
      environment,
      options,
      settings,
      models,
      env: process.env,
      journal,
      limits: link.limits,
      module: { specifier, options: start.options },
      rewardThreads: Math.max(1, Math.floor(availableParallelism() / start.workers)),
    })
    const report = (): void => {
      const metrics = telemetry?.takeDelta()
      link.send({
        kind: 'status',
        models: executor.models(),
        lag: lag.snapshot(),
        memoryBytes: link.memoryBytes(),
        offload: executor.offload(),
        ...(metrics && { metrics }),
      })
    }
    setInterval(report, statusEveryMs)
    link.onMessage((message) => {
      if (message.kind === 'abort') {
        running.get(message.call)?.abort(MillraceError.fromWire(message.reason))
      } else if (message.kind === 'close') {
        // Closed from the last to the first, so that what the executor does at its end is still counted and reported.
        const lastReport = { [Symbol.asyncDispose]: async () => report() }
        void end([journal, link.limits, telemetry, lastReport, executor])
      } else {
        const { call } = message
        const controller = new AbortSource()
        running.set(call, controller)
        const work = currentCall.run(call, () => carryOut(message, { executor, journal, signal: controller.signal }))
        void answer(link, call, work, () => {
          running.delete(call)
          // Before the last one's answer: whoever then adds up calls and tries must have all of them.
          if (running.size === 0) report()
        })
      }
    })
    report()
    link.send({ kind: 'ready' })
  } catch (error) {
    link.send({ kind: 'start-failed', error: MillraceError.from(error, 'internal').toWire() })
    await journal.close()
  }
}

async function carryOut(
  question: Question,
  { executor, journal, signal }: { executor: Executor; journal: JournalClient; signal: AbortSignal },
): Promise<Answer> {
  switch (question.kind) {
    case 'run': {
      const result = await executor.run(question.job, signal)
      // The result is settled over another port: what it stands on must be on disk before it gets there.
      await journal.durable()
      return result
    }
    case 'score-group':
      return await executor.scoreGroup(question.job, signal)
    case 'preflight':
      return await executor.preflight(signal)
  }
}

async function answer(link: SupervisorLink, call: number, work: Promise<Answer>, onEnd: () => void): Promise<void> {
  const reply = await work.then(
    (value) => ({ kind: 'done' as const, call, value }),
    (error: unknown) => ({ kind: 'failed' as const, call, error: MillraceError.from(error, 'internal').toWire() }),
  )
  onEnd()
  try {
    link.send(reply)
  } catch (error) {
    // Something in it cannot be cloned; the one who waits must hear of it all the same.
    const { rawMessage } = MillraceError.from(error, 'internal')
    const failure = new MillraceError('env_invalid', `the result cannot leave its worker: ${rawMessage}`)
    link.send({ kind: 'failed', call, error: failure.toWire() })
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

/** By default Node would end a worker, and all rollouts on it, for a promise that one of them forgot. */
function reportErrors(link: SupervisorLink): void {
  process.on('unhandledRejection', (reason) => link.send({ kind: 'stray-error', error: strayErrorOf(reason) }))
  let hasSpoken = false
  const sayLastWords = (error?: StrayError): void => {
    const call = currentCall.getStore()
    if (hasSpoken || (call === undefined && !error)) return
    hasSpoken = true
    link.send({ kind: 'last-words', ...(call !== undefined && { call }), ...(error && { error }) })
  }
  // After something thrown where nobody can catch it, nobody knows what still works.
  process.on('uncaughtException', (thrown) => {
    sayLastWords(strayErrorOf(thrown))
    process.exit(1)
  })
  process.on('exit', () => sayLastWords())
}

function strayErrorOf(thrown: unknown): StrayError {
  const { rawMessage: message } = MillraceError.from(thrown, 'agent_failed')
  const place = placeOfError(thrown)
  return { message, ...(place !== undefined && { place }) }
}
