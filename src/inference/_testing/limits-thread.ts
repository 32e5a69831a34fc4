import { setImmediate as nextTurn } from 'node:timers/promises'
import { parentPort, workerData } from 'node:worker_threads'
import { sleep } from '../../kit/index.ts'
import type { Backend } from '../backend.ts'
import { modelConfigSchema } from '../model-config.ts'
import { Model } from '../model.ts'
import { RateLimit } from '../limits/rate-limit.ts'
import { openLimits, type LimitsHandle } from '../limits/worker-limits.ts'
import { failure, goodReply } from './fake-backend.ts'
import { Gauge } from './gauge.ts'

export interface LimitsThreadStart {
  readonly limits: LimitsHandle
  readonly gauge: SharedArrayBuffer
}

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
  /** Calls the model so often at once, with a backend that fails or hangs while the gauge says so; answers how often. */
  | { readonly kind: 'call'; readonly calls: number }
  /** Asks so often whether the rate allows a request; answers how often it did. */
  | { readonly kind: 'take'; readonly times: number; readonly requestsPerMinute: number }

const port = parentPort
if (!port) throw new Error('this file is the entry of a thread')
const start = workerData as LimitsThreadStart
const gauge = new Gauge(start.gauge)
const limits = openLimits(start.limits, () => undefined)
const { permits } = limits.model('m')
const backend: Backend = {
  name: 'b',
  async send() {
    gauge.enter()
    do await sleep(10)
    while (gauge.isHanging)
    gauge.leave()
    if (gauge.isDown) throw failure('model_overloaded')
    return goodReply
  },
  async [Symbol.asyncDispose]() {},
}
const stopped = new AbortController()

port.on('message', (task: LimitsThreadTask) => {
  void carryOut(task).then((answer) => port.postMessage(answer))
})

async function carryOut(task: LimitsThreadTask): Promise<number> {
  if (task.kind === 'churn') return await churn(task.clients, task.times)
  if (task.kind === 'hold') return await hold(task.permits)
  if (task.kind === 'give-up') return await giveUp(task.clients)
  if (task.kind === 'call') return await call(task.calls)
  if (task.kind === 'take') return take(task.times, task.requestsPerMinute)
  if (task.kind === 'queue-and-block') {
    const served = churn(task.clients, 1)
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

async function giveUp(clients: number): Promise<number> {
  const controller = new AbortController()
  const waits = Array.from({ length: clients }, () => permits.acquire(controller.signal))
  setImmediate(() => controller.abort(new Error('enough')))
  const ends = await Promise.allSettled(waits)
  return ends.filter(({ status }) => status === 'rejected').length
}

function take(times: number, requestsPerMinute: number): number {
  const rate = new RateLimit({ requestsPerMinute, tokensPerMinute: undefined, shared: limits.model('m') })
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
  const config = modelConfigSchema.parse({ name: 'm', backends: [{ url: 'http://localhost/v1' }], maxConcurrency: 64 })
  await using model = new Model(config, [backend], { limits: limits.model('m') })
  const { signal } = new AbortController()
  const request = { messages: [], tools: [], sampling: {}, captureTokens: false, sessionId: 's' }
  await Promise.all(Array.from({ length: calls }, () => model.call(request, { signal })))
  return calls
}
