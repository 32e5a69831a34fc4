import { setImmediate as nextTurn } from 'node:timers/promises'
import { parentPort, workerData } from 'node:worker_threads'
import { sleep } from '../../../src/kit/index.ts'
import type { Backend } from '../../../src/apis/backend.ts'
import { modelConfigSchema } from '../../../src/inference/config.ts'
import { Model } from '../../../src/inference/model/model.ts'
import { RateLimit } from '../../../src/inference/limits/rate-limit.ts'
import {
  WorkerLimits,
  type GrantMessage,
  type LeaseMessage,
  type LimitsHandle,
} from '../../../src/inference/limits/worker-limits.ts'
import { failure, goodReply } from './fake-backend.ts'
import { Gauge } from './gauge.ts'

export interface LimitsThreadStart {
  readonly limits: LimitsHandle
  readonly gauge: SharedArrayBuffer
}

export type ToLimitsThread =
  | { readonly kind: 'limits'; readonly grant: GrantMessage }
  | { readonly kind: 'task'; readonly id: number; readonly task: LimitsThreadTask }

export type FromLimitsThread =
  | { readonly kind: 'limits'; readonly lease: LeaseMessage }
  | { readonly kind: 'answer'; readonly id: number; readonly answer: number }

/** What a test can have the thread do. Each is answered with a number when it is done. */
export type LimitsThreadTask =
  /** So many clients, each of which takes a permit so many times, or until it is told to stop; answers how often. */
  | { readonly kind: 'churn'; readonly clients: number; readonly times: number }
  | { readonly kind: 'stop' }
  /** Takes permits and keeps them. */
  | { readonly kind: 'hold'; readonly permits: number }
  /** So many wait for a permit, and then give up. */
  | { readonly kind: 'give-up'; readonly clients: number }
  /** So many wait for a permit, and then the thread blocks until the gauge says that it may go on. */
  | { readonly kind: 'queue-and-block'; readonly clients: number }
  /** Calls the model so often at once, with a backend that fails while the gauge says so; answers how often. */
  | { readonly kind: 'call'; readonly calls: number }
  /** Answers how many calls are parked. */
  | { readonly kind: 'parked' }
  /** Asks so often whether the rate allows a request; answers how often it did. */
  | { readonly kind: 'take'; readonly times: number; readonly requestsPerMinute: number }

const port = parentPort
if (!port) throw new Error('this file must be started as a thread')
const start = workerData as LimitsThreadStart
const gauge = new Gauge(start.gauge)
const send = (message: FromLimitsThread): void => port.postMessage(message)
const limits = new WorkerLimits(start.limits, (lease) => send({ kind: 'limits', lease }))
const { permits } = limits.model('m')
const backend: Backend = {
  name: 'b',
  async send() {
    gauge.enter()
    gauge.count()
    await sleep(10)
    gauge.leave()
    if (gauge.isDown) throw failure('model_overloaded')
    return goodReply
  },
  async [Symbol.asyncDispose]() {},
}
const config = modelConfigSchema.parse({ name: 'm', backends: [{ url: 'http://localhost/v1' }], maxConcurrency: 64 })
const model = new Model(config, [backend], { limits: limits.model('m') })
const stopped = new AbortController()

port.on('message', (message: ToLimitsThread) => {
  if (message.kind === 'limits') limits.receive(message.grant)
  else void run(message.task).then((answer) => send({ kind: 'answer', id: message.id, answer }))
})

async function run(task: LimitsThreadTask): Promise<number> {
  if (task.kind === 'churn') return await churn(task.clients, task.times)
  if (task.kind === 'hold') return await hold(task.permits)
  if (task.kind === 'give-up') return await abortClients(task.clients)
  if (task.kind === 'call') return await call(task.calls)
  if (task.kind === 'parked') return model.status().parked
  if (task.kind === 'take') return take(task.times, task.requestsPerMinute)
  if (task.kind === 'queue-and-block') {
    const served = churn(task.clients, 1)
    // The request for permits is on its way.
    await nextTurn()
    gauge.block()
    return await served
  }
  stopped.abort()
  return 0
}

async function hold(count: number): Promise<number> {
  for (let held = 0; held < count; held += 1) await permits.acquire()
  return count
}

async function abortClients(clients: number): Promise<number> {
  const controller = new AbortController()
  const waits = Array.from({ length: clients }, () => permits.acquire(controller.signal))
  setTimeout(() => controller.abort(new Error('enough')), 20)
  const ends = await Promise.allSettled(waits)
  return ends.filter(({ status }) => status === 'rejected').length
}

function take(times: number, requestsPerMinute: number): number {
  const rate = new RateLimit({ requestsPerMinute, tokensPerMinute: undefined, share: limits.model('m').rate })
  return Array.from({ length: times }, () => rate.tryTake(0)).filter(Boolean).length
}

async function churn(clients: number, times: number): Promise<number> {
  let served = 0
  const client = async (): Promise<void> => {
    for (let time = 0; time < times && !stopped.signal.aborted; time += 1) {
      if (!permits.tryAcquire()) await permits.acquire()
      gauge.enter()
      await nextTurn()
      gauge.leave()
      permits.release()
      served += 1
      gauge.count()
    }
  }
  await Promise.all(Array.from({ length: clients }, client))
  return served
}

async function call(calls: number): Promise<number> {
  const { signal } = new AbortController()
  const request = { messages: [], tools: [], sampling: {}, captureTokens: false, sessionId: 's' }
  await Promise.all(Array.from({ length: calls }, () => model.call(request, { signal })))
  return calls
}
