import { once } from 'node:events'
import { Worker } from 'node:worker_threads'
import { describe, expect, test } from 'vitest'
import { workerUrl } from '../../src/kit/index.ts'
import { GateCells, phaseOf } from '../../src/inference/limits/_gate-cells.ts'
import { FakeBackend, goodReply } from '../../src/inference/_testing/fake-backend.ts'
import { Gauge } from '../../src/inference/_testing/gauge.ts'
import type { LimitsThreadStart, LimitsThreadTask } from '../../src/inference/_testing/limits-thread.ts'
import type { ModelRequest } from '../../src/inference/backend.ts'
import { modelConfigSchema, type ModelConfig, type ModelConfigInput } from '../../src/inference/model-config.ts'
import { Model } from '../../src/inference/model.ts'
import { SharedLimits } from '../../src/inference/limits/shared-limits.ts'
import { mapCells, type BackendCells, type LimitCells } from '../../src/inference/limits/shared-limits-cells.ts'
import { openLimits, type SharedHandle } from '../../src/inference/limits/worker-limits.ts'

/** A thread that does what it is told with the limits it was given. */
class LimitsThread implements AsyncDisposable {
  readonly #worker: Worker

  constructor(start: LimitsThreadStart) {
    this.#worker = new Worker(workerUrl(import.meta, '../../src/inference/_testing/limits-thread'), {
      workerData: start,
    })
  }

  /** One task at a time is answered in order only if it is the only one of its thread. */
  async does(task: LimitsThreadTask): Promise<number> {
    this.starts(task)
    const [answer] = (await once(this.#worker, 'message')) as [number]
    return answer
  }

  starts(task: LimitsThreadTask): void {
    this.#worker.postMessage(task)
  }

  /** As when it runs out of memory: no code of its own runs any more. */
  async dies(): Promise<void> {
    await this.#worker.terminate()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#worker.terminate()
  }
}

class Setting implements AsyncDisposable {
  readonly config: ModelConfig
  readonly limits: SharedLimits
  readonly gauge: Gauge
  readonly #memory = new SharedArrayBuffer(Gauge.bytes)
  readonly #handle: SharedHandle
  readonly #threads: LimitsThread[] = []

  constructor(config: Partial<ModelConfigInput>, slots = 4) {
    this.config = modelConfigSchema.parse({ name: 'm', backends: [{ url: 'http://localhost/v1' }], ...config })
    this.limits = SharedLimits.create([this.config], { slots })
    this.gauge = new Gauge(this.#memory)
    this.#handle = this.limits.handle(slots - 1)
  }

  thread(slot: number): LimitsThread {
    const thread = new LimitsThread({ limits: this.limits.handle(slot), gauge: this.#memory })
    this.#threads.push(thread)
    return thread
  }

  get cells(): LimitCells {
    const { shapes, places, memory } = this.#handle
    return mapCells(shapes, places, memory).limits[0] as LimitCells
  }

  get status() {
    return this.limits.status()[0]
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.gauge.unblock()
    for (const thread of this.#threads) await thread[Symbol.asyncDispose]()
    await this.limits.close()
  }
}

const ask: ModelRequest = { messages: [], tools: [], sampling: {}, captureTokens: false, sessionId: 's' }
const idle = { inFlight: 0, waiting: 0, parked: 0 }

describe('threads', () => {
  test('together never hold more permits than there are, and all are served', async () => {
    await using setting = new Setting({ maxConcurrency: 5 })
    const threads = [0, 1, 2].map((slot) => setting.thread(slot))
    const served = await Promise.all(threads.map((thread) => thread.does({ kind: 'churn', clients: 30, times: 100 })))
    expect(served).toEqual([3000, 3000, 3000])
    expect(setting.gauge.most).toBe(5)
    expect(setting.status).toMatchObject(idle)
  })

  test('take turns: one that waits on its own is served beside a queue that never ends', async () => {
    await using setting = new Setting({ maxConcurrency: 1 })
    const [crowd, lonely] = [setting.thread(0), setting.thread(1)]
    crowd.starts({ kind: 'churn', clients: 200, times: 1_000_000 })
    await expect.poll(() => setting.gauge.counted).toBeGreaterThan(200)
    expect(await lonely.does({ kind: 'churn', clients: 1, times: 100 })).toBe(100)
    expect(setting.status?.waiting).toBeGreaterThan(0)
    crowd.starts({ kind: 'stop' })
    await expect.poll(() => setting.status).toMatchObject(idle)
  })

  test('a permit freed on one thread serves one who waits on another', async () => {
    await using setting = new Setting({ maxConcurrency: 3 })
    const [one, other] = [setting.thread(0), setting.thread(1)]
    await one.does({ kind: 'churn', clients: 3, times: 10 })
    await one.does({ kind: 'hold', permits: 2 })
    expect(await other.does({ kind: 'churn', clients: 20, times: 10 })).toBe(200)
    expect(setting.status).toMatchObject({ ...idle, inFlight: 2 })
  })

  test('that block do not keep permits from the others', async () => {
    await using setting = new Setting({ maxConcurrency: 4 })
    const [blocked, other] = [setting.thread(0), setting.thread(1)]
    other.starts({ kind: 'churn', clients: 10, times: 1_000_000 })
    await expect.poll(() => setting.gauge.counted).toBeGreaterThan(100)
    const served = blocked.does({ kind: 'queue-and-block', clients: 50 })
    await expect.poll(() => setting.gauge.isBlocked).toBe(true)
    const before = setting.gauge.counted
    // Were every second permit sent to the thread that does not answer, none would be left after a few.
    await expect.poll(() => setting.gauge.counted - before).toBeGreaterThan(5000)
    setting.gauge.unblock()
    expect(await served).toBe(50)
    other.starts({ kind: 'stop' })
    await expect.poll(() => setting.status).toMatchObject(idle)
  })

  test('those who give up leave nothing behind', async () => {
    await using setting = new Setting({ maxConcurrency: 1 })
    const [one, other] = [setting.thread(0), setting.thread(1)]
    await one.does({ kind: 'hold', permits: 1 })
    expect(await other.does({ kind: 'give-up', clients: 100 })).toBe(100)
    expect(setting.status).toMatchObject({ ...idle, inFlight: 1 })
  })

  test('one that dies gives back what it held and what it waited for', async () => {
    await using setting = new Setting({ maxConcurrency: 4 })
    const [doomed, heir] = [setting.thread(0), setting.thread(1)]
    await doomed.does({ kind: 'hold', permits: 4 })
    doomed.starts({ kind: 'churn', clients: 10, times: 1 })
    heir.starts({ kind: 'churn', clients: 8, times: 100 })
    await expect.poll(() => setting.status).toMatchObject({ inFlight: 4, waiting: 18 })
    await doomed.dies()
    setting.limits.reclaim(0)
    await expect.poll(() => setting.gauge.counted).toBe(800)
    await expect.poll(() => setting.status).toMatchObject(idle)
    expect(setting.gauge.most).toBe(4)
  })

  test('that die in the middle of everything leak nothing', async () => {
    await using setting = new Setting({ maxConcurrency: 6 })
    const survivor = setting.thread(0)
    survivor.starts({ kind: 'churn', clients: 20, times: 1_000_000 })
    for (let round = 0; round < 8; round += 1) {
      const doomed = setting.thread(1)
      doomed.starts({ kind: 'churn', clients: 20, times: 1_000_000 })
      const before = setting.gauge.counted
      await expect.poll(() => setting.gauge.counted - before).toBeGreaterThan(2000)
      await doomed.dies()
      setting.limits.reclaim(1)
    }
    survivor.starts({ kind: 'stop' })
    await expect.poll(() => setting.status).toMatchObject(idle)
  })

  test('share what they learn about a backend: one closes its gate, all park, one at a time probes', async () => {
    await using setting = new Setting({ maxConcurrency: 64 })
    const [one, other] = [setting.thread(0), setting.thread(1)]
    await other.does({ kind: 'churn', clients: 1, times: 1 })
    setting.gauge.isDown = true
    const first = one.does({ kind: 'call', calls: 10 })
    await expect.poll(() => setting.status?.parked).toBe(10)
    const before = setting.status?.tries ?? 0
    setting.gauge.forgetMost()
    const second = other.does({ kind: 'call', calls: 10 })
    await expect.poll(() => setting.status?.parked).toBe(20)
    await expect.poll(() => (setting.status?.tries ?? 0) - before).toBeGreaterThanOrEqual(2)
    expect(setting.gauge.most).toBe(1)
    // Had the second thread to find out by itself, all of its calls would have been sent.
    expect((setting.status?.tries ?? 0) - before).toBeLessThan(10)
    setting.gauge.isDown = false
    expect([await first, await second]).toEqual([10, 10])
    expect(setting.status).toMatchObject({ ...idle, calls: 20 })
  })

  test('one that dies as it probes lets another one probe', async () => {
    await using setting = new Setting({ maxConcurrency: 64 })
    const [doomed, heir] = [setting.thread(0), setting.thread(1)]
    setting.gauge.isDown = true
    doomed.starts({ kind: 'call', calls: 10 })
    await expect.poll(() => setting.status?.parked).toBe(10)
    setting.gauge.isHanging = true
    const { backends } = setting.cells
    await expect.poll(() => phaseOf(new GateCells(backends[0] as BackendCells).word)).toBe('probing')
    await doomed.dies()
    setting.limits.reclaim(0)
    expect(setting.status).toMatchObject(idle)
    setting.gauge.isDown = false
    setting.gauge.isHanging = false
    expect(await heir.does({ kind: 'call', calls: 10 })).toBe(10)
  })

  test('keep to one rate together', async () => {
    await using setting = new Setting({})
    const threads = [setting.thread(0), setting.thread(1)]
    const startedAt = performance.now()
    const taken = await Promise.all(
      threads.map((thread) => thread.does({ kind: 'take', times: 1000, requestsPerMinute: 600 })),
    )
    const total = taken.reduce((sum, count) => sum + count, 0)
    expect(total).toBeGreaterThanOrEqual(100)
    expect(total).toBeLessThanOrEqual(101 + (performance.now() - startedAt) / 100)
  })
})

describe('the owner', () => {
  const twoBackends = { backends: [{ url: 'http://one/v1' }, { url: 'http://two/v1' }] }

  test('lets every worker route by what all have on their way', async () => {
    await using setting = new Setting(twoBackends)
    const limits = [0, 1].map((slot) => openLimits(setting.limits.handle(slot), () => undefined))
    const controller = new AbortController()
    const backendsOf = limits.map(() => ['one', 'two'].map((name) => new FakeBackend(name, () => goodReply, 1_000_000)))
    const models = limits.map((worker, index) => {
      return new Model(setting.config, backendsOf[index] ?? [], { limits: worker.model('m') })
    })
    const calls = ['a', 'b', 'c', 'd'].map((sessionId, index) => {
      return (models[index % 2] as Model).call({ ...ask, sessionId }, { signal: controller.signal })
    })
    const onTheWay = [0, 1].map((at) => backendsOf.reduce((sum, backends) => sum + (backends[at]?.inFlight ?? 0), 0))
    expect(onTheWay).toEqual([2, 2])
    controller.abort(new Error('enough'))
    await Promise.all(calls)
    expect(setting.status).toMatchObject({ ...idle, calls: 4, tries: 4 })
    for (const model of models) await model.close()
    for (const worker of limits) await worker[Symbol.asyncDispose]()
  })

  test('has permits beside those of the models, which may be called the same', async () => {
    const model = modelConfigSchema.parse({ name: 'm', backends: [{ url: 'http://one/v1' }], maxConcurrency: 7 })
    await using limits = SharedLimits.create([model], { slots: 1, permits: { m: 2 } })
    await using worker = openLimits(limits.handle(0), () => undefined)
    expect([worker.permits('m').limit, worker.model('m').permits.limit]).toEqual([2, 7])
    expect(() => worker.model('other')).toThrow(/no limit is named other/)
    expect(limits.status()).toHaveLength(1)
  })

  test('gives a slot to one worker at a time', () => {
    const limits = SharedLimits.create([], { slots: 1 })
    expect(limits.handle(0, { workers: 3 }).workers).toBe(3)
    expect(() => limits.handle(0)).toThrow(/slot 0 is taken/)
    limits.reclaim(0)
    limits.handle(0)
    expect(() => limits.handle(1)).toThrow(/there is no slot 1/)
    expect(() => SharedLimits.create([], { slots: 256 })).toThrow(/at most 255/)
  })
})
