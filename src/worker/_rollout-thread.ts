import { parentPort, workerData } from 'node:worker_threads'
import { loadEnvironment, placeOfError } from '../env/index.ts'
import { MillraceError } from '../errors/index.ts'
import { InlineExecutor } from '../rollout/index.ts'
import { JournalClient } from '../store/index.ts'
import type { FromThread, ThreadStart, ToThread } from './thread-messages.ts'

const statusEveryMs = 250

const port = parentPort
if (!port) throw new MillraceError('internal', 'this file is the entry of a rollout thread')
const send = (message: FromThread): void => port.postMessage(message)

// By default Node would end the thread, and all rollouts with it, for a promise that one of them forgot.
process.on('unhandledRejection', (reason) => {
  const { rawMessage: message } = MillraceError.from(reason, 'agent_failed')
  const place = placeOfError(reason)
  send({ kind: 'stray-error', error: { message, ...(place !== undefined && { place }) } })
})

const start = workerData as ThreadStart
const journal = new JournalClient(start.journal)
const running = new Map<number, AbortController>()

async function open(): Promise<InlineExecutor> {
  const { environment, options } = await loadEnvironment(start.specifier, start.options)
  return new InlineExecutor({
    environment,
    options,
    settings: start.settings,
    models: start.models,
    env: process.env,
    journal,
  })
}

try {
  const executor = await open()
  const status = setInterval(() => send({ kind: 'status', models: executor.models() }), statusEveryMs)
  port.on('message', (message: ToThread) => {
    if (message.kind === 'abort') {
      running.get(message.call)?.abort(MillraceError.fromWire(message.reason))
    } else if (message.kind === 'close') {
      clearInterval(status)
      port.close()
      void executor.close().then(() => journal.close())
    } else {
      void answer(executor, message)
    }
  })
  send({ kind: 'ready' })
} catch (error) {
  send({ kind: 'start-failed', error: MillraceError.from(error, 'internal').toWire() })
  await journal.close()
}

async function answer(
  executor: InlineExecutor,
  message: Exclude<ToThread, { kind: 'abort' | 'close' }>,
): Promise<void> {
  const controller = new AbortController()
  running.set(message.call, controller)
  const reply = await carryOut(executor, message, controller.signal).then(
    (value) => ({ kind: 'done' as const, call: message.call, value }),
    (error: unknown) => ({
      kind: 'failed' as const,
      call: message.call,
      error: MillraceError.from(error, 'internal').toWire(),
    }),
  )
  running.delete(message.call)
  // Before the last one's answer: whoever then adds up calls and tries must have all of them.
  if (running.size === 0) send({ kind: 'status', models: executor.models() })
  try {
    send(reply)
  } catch (error) {
    // Something in it cannot cross threads; the one who waits must hear of it all the same.
    const { rawMessage } = MillraceError.from(error, 'internal')
    const failure = new MillraceError('env_invalid', `the result cannot leave its thread: ${rawMessage}`)
    send({ kind: 'failed', call: message.call, error: failure.toWire() })
  }
}

async function carryOut(
  executor: InlineExecutor,
  message: Exclude<ToThread, { kind: 'abort' | 'close' }>,
  signal: AbortSignal,
) {
  switch (message.kind) {
    case 'run': {
      const result = await executor.run(message.job, signal)
      // The result is settled over another port: what it stands on must be on disk before it gets there.
      await journal.durable()
      return result
    }
    case 'score-group':
      return await executor.scoreGroup(message.job, signal)
    case 'preflight':
      return await executor.preflight(signal)
  }
}
