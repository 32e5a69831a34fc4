import { Worker } from 'node:worker_threads'
import { describe, expect, test } from 'vitest'
import { workerUrl } from '../../src/kit/index.ts'
import { activeResources, leftSince } from '../support/kit/active-resources.ts'
import { failure, FakeBackend, goodReply } from '../support/inference/fake-backend.ts'
import { Gauge } from '../support/inference/gauge.ts'
import type { FromLimitsThread, LimitsThreadTask, ToLimitsThread } from '../support/inference/limits-thread.ts'
import type { ModelRequest } from '../../src/apis/backend.ts'
import { modelConfigSchema, type ModelConfig, type ModelConfigInput } from '../../src/inference/config.ts'
import type { LimitChange } from '../../src/inference/model-client.ts'
import { Model } from '../../src/inference/model/model.ts'
import { SharedLimits, type LimitLease } from '../../src/inference/limits/shared-limits.ts'
import { WorkerLimits, type GrantMessage, type LeaseMessage } from '../../src/inference/limits/worker-limits.ts'

/** A thread that does what it is told with the limits it has leased. */
class LimitsThread implements AsyncDisposable {
  readonly #worker: Worker
  readonly #lease: LimitLease
  readonly #answers = new Map<number, (answer: number) => void>()
  #lastId = 0

  constructor(limits: SharedLimits, gauge: SharedArrayBuffer) {
    this.#lease = limits.lease((grant) => this.#send({ kind: 'limits', grant }))
    this.#worker = new Worker(workerUrl(import.meta, '../support/inference/limits-thread'), {
      workerData: { limits: this.#lease.handle, gauge },
    })
    this.#worker.on('message', (message: FromLimitsThread) => {
      if (message.kind === 'limits') this.#lease.receive(message.lease)
      else this.#answers.get(message.id)?.(message.answer)
    })
  }

  does(task: LimitsThreadTask): Promise<number> {
    this.#lastId += 1
    const id = this.#lastId
    this.#send({ kind: 'task', id, task })
    return new Promise((resolve) => this.#answers.set(id, resolve))
  }

  starts(task: LimitsThreadTask): void {
    void this.does(task)
  }

  /** As when it runs out of memory: no code of its own runs any more. */
  async dies(): Promise<void> {
    await this.#worker.terminate()
    this.#lease.close()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.dies()
  }

  #send(message: ToLimitsThread): void {
    this.#worker.postMessage(message)
  }
}

class Setting implements AsyncDisposable {
  readonly limits: SharedLimits
  readonly gauge: Gauge
  readonly #memory = new SharedArrayBuffer(Gauge.bytes)
  readonly #threads: LimitsThread[] = []

  constructor(options: Partial<ModelConfigInput>) {
    this.limits = new SharedLimits([config(options)], { maxLeases: 4 })
    this.gauge = new Gauge(this.#memory)
  }

  thread(): LimitsThread {
    const thread = new LimitsThread(this.limits, this.#memory)
    this.#threads.push(thread)
    return thread
  }

  get status() {
    return this.limits.status()[0]
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.gauge.unblock()
    for (const thread of this.#threads) await thread[Symbol.asyncDispose]()
  }
}

const ask: ModelRequest = { messages: [], tools: [], sampling: {}, captureTokens: false, sessionId: 's' }
const idle = { leased: 0, wanted: 0 }

function config(options: Partial<ModelConfigInput> = {}): ModelConfig {
  return modelConfigSchema.parse({ name: 'm', backends: [{ url: 'http://localhost/v1' }], ...options })
}

describe('workers with shared limits', () => {
  test('together never exceed the permits, are all served, and return idle permits', async () => {
    await using setting = new Setting({ maxConcurrency: 5 })
    const threads = [setting.thread(), setting.thread(), setting.thread()]
    const served = await Promise.all(threads.map((thread) => thread.does({ kind: 'churn', clients: 30, times: 30 })))
    expect(served).toEqual([900, 900, 900])
    expect(setting.gauge.most).toBe(5)
    await expect.poll(() => setting.status).toMatchObject(idle)
  })

  test('take turns: a single waiting client is served beside a queue that never ends', async () => {
    await using setting = new Setting({ maxConcurrency: 1 })
    const [crowd, single] = [setting.thread(), setting.thread()]
    crowd.starts({ kind: 'churn', clients: 200, times: 1_000_000 })
    await expect.poll(() => setting.gauge.counted).toBeGreaterThan(200)
    expect(await single.does({ kind: 'churn', clients: 1, times: 100 })).toBe(100)
    expect(setting.status?.leased).toBe(1)
    crowd.starts({ kind: 'stop' })
    await expect.poll(() => setting.status).toMatchObject(idle)
  })

  test('pass a permit freed in one worker to a client that waits in another', async () => {
    await using setting = new Setting({ maxConcurrency: 3 })
    const [one, other] = [setting.thread(), setting.thread()]
    await one.does({ kind: 'churn', clients: 3, times: 10 })
    await one.does({ kind: 'hold', permits: 2 })
    expect(await other.does({ kind: 'churn', clients: 20, times: 10 })).toBe(200)
    await expect.poll(() => setting.status).toMatchObject({ leased: 2, wanted: 0 })
  })

  test('keep no more than their share while their event loop is blocked', async () => {
    await using setting = new Setting({ maxConcurrency: 4 })
    const [blocked, other] = [setting.thread(), setting.thread()]
    other.starts({ kind: 'churn', clients: 10, times: 1_000_000 })
    await expect.poll(() => setting.gauge.counted).toBeGreaterThan(100)
    const served = blocked.does({ kind: 'queue-and-block', clients: 50 })
    await expect.poll(() => setting.gauge.isBlocked).toBe(true)
    const before = setting.gauge.counted
    await expect.poll(() => setting.gauge.counted - before).toBeGreaterThan(1000)
    setting.gauge.unblock()
    expect(await served).toBe(50)
    other.starts({ kind: 'stop' })
    await expect.poll(() => setting.status).toMatchObject(idle)
  })

  test('leave no permit or request behind when their calls are cancelled', async () => {
    await using setting = new Setting({ maxConcurrency: 1 })
    const [one, other] = [setting.thread(), setting.thread()]
    await one.does({ kind: 'hold', permits: 1 })
    expect(await other.does({ kind: 'give-up', clients: 100 })).toBe(100)
    await expect.poll(() => setting.status).toMatchObject({ leased: 1, wanted: 0 })
  })

  test('return their permits and requests when they die', async () => {
    await using setting = new Setting({ maxConcurrency: 4 })
    const [doomed, heir] = [setting.thread(), setting.thread()]
    await doomed.does({ kind: 'hold', permits: 4 })
    doomed.starts({ kind: 'churn', clients: 10, times: 1 })
    heir.starts({ kind: 'churn', clients: 8, times: 100 })
    await expect.poll(() => setting.status).toMatchObject({ leased: 4, wanted: 18 })
    await doomed.dies()
    await expect.poll(() => setting.gauge.counted).toBe(800)
    await expect.poll(() => setting.status).toMatchObject(idle)
    expect(setting.gauge.most).toBe(4)
  })

  test('leak no permits when they die under load', async () => {
    await using setting = new Setting({ maxConcurrency: 6 })
    const survivor = setting.thread()
    survivor.starts({ kind: 'churn', clients: 20, times: 1_000_000 })
    for (let round = 0; round < 4; round += 1) {
      const doomed = setting.thread()
      doomed.starts({ kind: 'churn', clients: 20, times: 1_000_000 })
      const before = setting.gauge.counted
      await expect.poll(() => setting.gauge.counted - before).toBeGreaterThan(500)
      await doomed.dies()
    }
    survivor.starts({ kind: 'stop' })
    await expect.poll(() => setting.status).toMatchObject(idle)
  })

  test('share the news that a backend is down or up, also from a worker that has died', async () => {
    await using setting = new Setting({ maxConcurrency: 64 })
    const [doomed, one] = [setting.thread(), setting.thread()]
    await one.does({ kind: 'churn', clients: 1, times: 1 })
    setting.gauge.isDown = true
    doomed.starts({ kind: 'call', calls: 10 })
    await expect.poll(() => doomed.does({ kind: 'parked' })).toBeGreaterThanOrEqual(9)
    await doomed.dies()
    const late = setting.thread()
    const before = setting.gauge.counted
    const calls = [one, late].map((thread) => thread.does({ kind: 'call', calls: 10 }))
    for (const thread of [one, late]) {
      await expect.poll(() => thread.does({ kind: 'parked' })).toBeGreaterThanOrEqual(9)
    }
    // They probe, but had they to find out by themselves, all of their calls would have been sent.
    expect(setting.gauge.counted - before).toBeLessThan(10)
    setting.gauge.isDown = false
    expect(await Promise.all(calls)).toEqual([10, 10])
  })

  test('keep one rate together', async () => {
    await using setting = new Setting({})
    const threads = [setting.thread(), setting.thread()]
    for (const thread of threads) await thread.does({ kind: 'parked' })
    const startedAt = performance.now()
    const taken = await Promise.all(
      threads.map((thread) => thread.does({ kind: 'take', times: 1000, requestsPerMinute: 600 })),
    )
    const total = taken.reduce((sum, count) => sum + count, 0)
    expect(total).toBeGreaterThanOrEqual(100)
    expect(total).toBeLessThanOrEqual(102 + (performance.now() - startedAt) / 100)
  })
})

describe('a lease', () => {
  function create(options: Partial<ModelConfigInput> = {}) {
    const changes: LimitChange[] = []
    const limits = new SharedLimits([config(options)], {
      maxLeases: 3,
      onLimitChange: (change) => changes.push(change),
    })
    return { limits, changes }
  }

  /** Both ends on one thread; what one sends the other has at once. */
  function lease(limits: SharedLimits) {
    const sent: LeaseMessage[] = []
    const received: GrantMessage[] = []
    const owner = limits.lease((message) => {
      received.push(message)
      worker.receive(message)
    })
    const worker: WorkerLimits = new WorkerLimits(owner.handle, (message) => {
      sent.push(message)
      owner.receive(message)
    })
    return { permits: worker.model('m').permits, worker, owner, sent, received }
  }

  test('is taken in batches and used again without a message', async () => {
    const { limits } = create({ maxConcurrency: 10 })
    const { permits, worker, sent, received } = lease(limits)
    await Promise.all(Array.from({ length: 8 }, () => permits.acquire()))
    expect(sent).toHaveLength(1)
    expect(received.map(({ granted }) => granted)).toEqual([8])
    for (let round = 0; round < 100; round += 1) {
      permits.release()
      expect(permits.tryAcquire()).toBe(true)
    }
    expect(sent).toHaveLength(1)
    expect(limits.status()[0]).toMatchObject({ leased: 8 })
    await worker.close()
  })

  test('is partly recalled when another worker waits, until both hold equally many', async () => {
    const { limits } = create({ maxConcurrency: 4 })
    const [rich, poor] = [lease(limits), lease(limits)]
    await Promise.all(Array.from({ length: 4 }, () => rich.permits.acquire()))
    const first = poor.permits.acquire()
    const second = poor.permits.acquire()
    rich.permits.release()
    await first
    rich.permits.release()
    await second
    // From here on each uses its own permits again, though the other one waits.
    void poor.permits.acquire()
    const own = rich.permits.acquire()
    await expect.poll(() => limits.status()[0]).toMatchObject({ leased: 4, wanted: 2 })
    rich.permits.release()
    await own
    expect([rich.permits.held, poor.permits.held]).toEqual([2, 2])
    for (const { worker } of [rich, poor]) await worker.close()
  })

  test('shrinks with the limit that its refusals have cut', async () => {
    const { limits, changes } = create({ maxConcurrency: 10 })
    const { permits, worker } = lease(limits)
    await Promise.all(Array.from({ length: 10 }, () => permits.acquire()))
    worker.model('m').onRateLimited(0)
    await expect.poll(() => limits.status()[0]?.limit).toBe(8)
    expect(changes).toMatchObject([{ model: 'm', kind: 'concurrency', from: 10, to: 8 }])
    const ninth = permits.acquire()
    for (let count = 0; count < 2; count += 1) permits.release()
    await expect.poll(() => limits.status()[0]).toMatchObject({ leased: 8, wanted: 1 })
    permits.release()
    await ninth
    await expect.poll(() => limits.status()[0]).toMatchObject({ leased: 8, wanted: 0 })
    await worker.close()
  })

  test('reports that a backend answers again', async () => {
    const { limits } = create()
    const down = () => failure('model_overloaded')
    const [sick, well] = [new FakeBackend('b', down), new FakeBackend('b', () => goodReply)]
    const leases = [lease(limits), lease(limits)] as const
    const controller = new AbortController()
    const sickModel = new Model(config(), [sick], { limits: leases[0].worker.model('m') })
    const wellModel = new Model(config(), [well], { limits: leases[1].worker.model('m') })
    const callTen = (model: Model) =>
      Promise.all(Array.from({ length: 10 }, () => model.call(ask, { signal: controller.signal })))
    const parked = callTen(sickModel)
    await expect.poll(() => sickModel.status().parked).toBe(10)
    sick.mostInFlight = 0
    // Its own probes go one at a time: two at once are let go because of what the other one found. Again, because the
    // news may come while a probe of its own is about to fail.
    const news = async (): Promise<number> => {
      await callTen(wellModel)
      return sick.mostInFlight
    }
    await expect.poll(news).toBeGreaterThanOrEqual(2)
    controller.abort(new Error('enough'))
    await parked
    for (const { worker } of leases) await worker.close()
  })

  test('is ignored once it is closed, also if its worker returns permits later', async () => {
    const { limits } = create({ maxConcurrency: 2 })
    const { permits, worker, owner } = lease(limits)
    await permits.acquire()
    owner.close()
    expect(limits.status()[0]).toMatchObject(idle)
    const wanted = {
      limit: 0,
      leased: 0,
      wanted: 5,
      isActive: true,
      returned: 1,
      answered: 0,
      refusals: [],
      breakers: [],
    }
    owner.receive(wanted)
    expect(limits.status()[0]).toMatchObject(idle)
    await worker.close()
  })

  test('leaves no resources behind when both ends are closed, once or twice', async () => {
    const before = activeResources()
    for (let round = 0; round < 50; round += 1) {
      const { limits } = create({ maxConcurrency: 1 })
      const { permits, worker, owner } = lease(limits)
      await permits.acquire()
      void permits.acquire()
      await Promise.all([worker.close(), worker.close()])
      owner.close()
      owner.close()
    }
    expect(await leftSince(before)).toEqual([])
  })

  test('divides the rates among the workers that have calls', async () => {
    const { limits } = create()
    const [one, other] = [lease(limits), lease(limits)]
    const leaseholders = () => [one, other].map(({ worker }) => worker.model('m').rate.leaseholders)
    expect(leaseholders()).toEqual([2, 2])
    await one.permits.acquire()
    expect(leaseholders()).toEqual([1, 2])
    await other.permits.acquire()
    expect(leaseholders()).toEqual([2, 2])
    other.owner.close()
    expect(leaseholders()[0]).toBe(1)
    for (const { worker } of [one, other]) await worker.close()
  })
})

describe('the owner of shared limits', () => {
  test('keeps its own permits apart from those of a model with the same name', async () => {
    const limits = new SharedLimits([config({ maxConcurrency: 7 })], { maxLeases: 1, permits: { m: 2 } })
    const lease = limits.lease((message) => worker.receive(message))
    await using worker = new WorkerLimits(lease.handle, (message) => lease.receive(message))
    const plain = worker.permits('m')
    await Promise.all([plain.acquire(), plain.acquire()])
    expect([plain.tryAcquire(), worker.model('m').permits.held]).toEqual([false, 0])
    expect(() => worker.model('other')).toThrow(/there is no limit named other/)
    expect(limits.status()).toHaveLength(1)
  })

  test('has a limited number of leases', () => {
    const limits = new SharedLimits([], { maxLeases: 1 })
    const lease = limits.lease(() => undefined, { workers: 3 })
    expect(lease.handle.workers).toBe(3)
    expect(() => limits.lease(() => undefined)).toThrow(/all 1 leases are taken/)
    lease.close()
    limits.lease(() => undefined)
    expect(() => new SharedLimits([], { maxLeases: 256 })).toThrow(/at most 255/)
  })
})
