import { once } from 'node:events'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { MessageChannel } from 'node:worker_threads'
import { expect, test } from 'vitest'
import { MillraceError } from '../../errors/index.ts'
import type { AttemptResult, Executor, RolloutJob } from '../../rollout/index.ts'
import { JournalClient } from '../../store/index.ts'
import { CallHandler } from './serve-rollouts.ts'
import type { SupervisorLink } from './supervisor-link.ts'
import type { FromWorker } from '../channel/channel.ts'

const lost: AttemptResult = { kind: 'lost', disposition: 'again', why: 'for a test' }

/** A handler whose rollouts are run by the test. The test is also the supervisor, and the writer of the journal. */
function handlerWith(run: Executor['run']) {
  const { port1: toWriter, port2: writer } = new MessageChannel()
  const journal = new JournalClient(toWriter)
  const said: string[] = []
  const send = (message: FromWorker): void => {
    // As a port does: throws if something cannot be cloned.
    structuredClone(message)
    said.push('call' in message ? `${message.kind} ${message.call}` : message.kind)
  }
  const link = { send } as SupervisorLink
  const executor = { run } as Executor
  const handler = new CallHandler({ link, executor, journal, onLast: () => said.push('last') })
  const start = (call: number): Promise<void> =>
    handler.answer({ kind: 'run', call, job: { id: `${call}` } as RolloutJob })
  return {
    handler,
    journal,
    writer,
    said,
    start,
    [Symbol.dispose]: () => writer.close(),
  }
}

test('a rollout is answered when its nodes are on disk, and not before', async () => {
  using worker = handlerWith(async () => {
    worker.journal.append({ kind: 'event', name: 'noted', rollout: '1', attempt: 1, at: 0, data: '{}' })
    return lost
  })
  const answered = worker.start(1)
  await once(worker.writer, 'message')
  for (let turn = 0; turn < 10; turn += 1) await nextTurn()
  expect(worker.said).toEqual([])
  worker.writer.postMessage(null)
  await answered
  expect(worker.said).toEqual(['last', 'done 1'])
})

test('a cancelled call is aborted with its reason; other calls are not aborted', async () => {
  const signals = new Map<string, AbortSignal>()
  const ends = new Map<string, (result: AttemptResult) => void>()
  using worker = handlerWith(({ id }, signal) => {
    const { promise, resolve } = Promise.withResolvers<AttemptResult>()
    signals.set(id, signal)
    ends.set(id, resolve)
    return promise
  })
  const answered = [worker.start(1), worker.start(2)]
  const enough = new MillraceError('cancelled', 'enough').toWire()
  worker.handler.abort(1, enough)
  expect(signals.get('1')?.reason).toMatchObject({ code: 'cancelled', rawMessage: 'enough' })
  expect(signals.get('2')?.aborted).toBe(false)
  for (const end of ends.values()) end(lost)
  await Promise.all(answered)
  worker.handler.abort(2, enough)
  expect(signals.get('2')?.aborted).toBe(false)
  // The report of the last call comes before its answer: the pool then has all counts.
  expect(worker.said).toEqual(['done 1', 'last', 'done 2'])
})

test('a failed rollout, and one whose result cannot be sent, are answered', async () => {
  using worker = handlerWith(({ id }) => {
    if (id === '1') return Promise.reject(new Error('oh'))
    return Promise.resolve({ ...lost, why: (() => 'no clone') as unknown as string })
  })
  await worker.start(1)
  await worker.start(2)
  expect(worker.said).toEqual(['last', 'failed 1', 'last', 'failed 2'])
})
