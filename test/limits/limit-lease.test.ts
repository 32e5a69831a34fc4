import { fork, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { createServer, type AddressInfo, type Server } from 'node:net'
import { fileURLToPath } from 'node:url'
import { describe, expect, test } from 'vitest'
import { activeResources, leftSince } from '../../src/kit/_testing/active-resources.ts'
import { workerUrl } from '../../src/kit/index.ts'
import { FakeBackend, failure, goodReply } from '../../src/inference/_testing/fake-backend.ts'
import type { FromLimitsProcess, ToLimitsProcess } from '../../src/inference/_testing/limits-process.ts'
import type { GrantMessage, LeaseMessage } from '../../src/inference/limits/lease-messages.ts'
import { LeasedLimits } from '../../src/inference/limits/leased-limits.ts'
import type { ModelRequest } from '../../src/inference/backend.ts'
import { modelConfigSchema, type ModelConfig, type ModelConfigInput } from '../../src/inference/model-config.ts'
import type { LimitChange } from '../../src/inference/model-contract.ts'
import { Model } from '../../src/inference/model.ts'
import { SharedLimits } from '../../src/inference/limits/shared-limits.ts'
import { openLimits } from '../../src/inference/limits/worker-limits.ts'

const visitMs = 2

/** Keeps each visitor for a moment, and counts how many there are. */
class Visited implements AsyncDisposable {
  readonly #server: Server
  now = 0
  most = 0
  total = 0
  /** While it is not, visitors stay. */
  isOpen = true

  private constructor() {
    this.#server = createServer((socket) => {
      this.now += 1
      this.total += 1
      this.most = Math.max(this.most, this.now)
      let isThere = true
      const leave = (): void => {
        if (isThere) this.now -= 1
        isThere = false
      }
      socket.on('error', () => undefined)
      socket.on('close', leave)
      if (!this.isOpen) return
      setTimeout(() => {
        // Before the visitor hears of it, who may send the next one at once.
        leave()
        socket.end()
      }, visitMs)
    })
  }

  static async start(): Promise<Visited> {
    const visited = new Visited()
    visited.#server.listen(0, '127.0.0.1')
    await once(visited.#server, 'listening')
    return visited
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.close()
  }
}

/** A process with a lease; its messages are relayed as a supervisor would. */
class LimitsProcess implements AsyncDisposable {
  readonly #child: ChildProcess
  readonly #exited: Promise<unknown>
  #onAnswer: (answer: number) => void = () => undefined

  constructor(limits: SharedLimits, slot: number, port: number) {
    this.#child = fork(fileURLToPath(workerUrl(import.meta, '../../src/inference/_testing/limits-process')), {
      execArgv: ['--no-warnings'],
    })
    this.#exited = once(this.#child, 'exit')
    const lease = limits.lease(slot, (message) => this.#send({ kind: 'limits', message }))
    this.#child.on('message', (message: FromLimitsProcess) => {
      if (message.kind === 'limits') lease.receive(message.message)
      else this.#onAnswer(message.answer)
    })
    this.#send({ kind: 'start', limits: lease.handle, port })
  }

  does(task: ToLimitsProcess): Promise<number> {
    return new Promise((resolve) => {
      this.#onAnswer = resolve
      this.#send(task)
    })
  }

  async dies(): Promise<void> {
    this.#child.kill('SIGKILL')
    await this.#exited
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.dies()
  }

  #send(message: ToLimitsProcess): void {
    if (this.#child.connected) this.#child.send(message, () => undefined)
  }
}

const ask: ModelRequest = { messages: [], tools: [], sampling: {}, captureTokens: false, sessionId: 's' }

function config(options: Partial<ModelConfigInput> = {}): ModelConfig {
  return modelConfigSchema.parse({ name: 'm', backends: [{ url: 'http://localhost/v1' }], ...options })
}

function create(options: Partial<ModelConfigInput> = {}) {
  const changes: LimitChange[] = []
  const limits = SharedLimits.create([config(options)], {
    slots: 3,
    onLimitChange: (change) => changes.push(change),
  })
  return { limits, changes }
}

const idle = { inFlight: 0, waiting: 0, parked: 0 }

describe('processes', () => {
  test('together never hold more permits than there are, all are served, and what is idle goes back', async () => {
    await using server = await Visited.start()
    const { limits } = create({ maxConcurrency: 4 })
    await using one = new LimitsProcess(limits, 0, server.port)
    await using other = new LimitsProcess(limits, 1, server.port)
    const visits = await Promise.all([
      one.does({ kind: 'visit', clients: 20, times: 10 }),
      other.does({ kind: 'visit', clients: 20, times: 10 }),
    ])
    expect(visits).toEqual([200, 200])
    expect(server.most).toBe(4)
    await expect.poll(() => limits.status()[0]).toMatchObject(idle)
    await limits.close()
  })

  test('one that is killed gives back what it held', async () => {
    await using server = await Visited.start()
    const { limits } = create({ maxConcurrency: 3 })
    await using doomed = new LimitsProcess(limits, 0, server.port)
    await using heir = new LimitsProcess(limits, 1, server.port)
    server.isOpen = false
    void doomed.does({ kind: 'visit', clients: 10, times: 1 })
    await expect.poll(() => server.now).toBe(3)
    const visits = heir.does({ kind: 'visit', clients: 5, times: 10 })
    await expect.poll(() => limits.status()[0]?.waiting).toBe(12)
    server.isOpen = true
    await doomed.dies()
    limits.reclaim(0)
    expect(await visits).toBe(50)
    expect(server.most).toBe(3)
    await limits.close()
  })

  test('learn from the others that a backend is down, also from one that has died of it', async () => {
    const { limits } = create()
    await using first = new LimitsProcess(limits, 0, 0)
    await using second = new LimitsProcess(limits, 1, 0)
    void first.does({ kind: 'call', calls: 10 })
    await expect.poll(() => limits.status()[0]?.parked).toBe(10)
    await first.dies()
    limits.reclaim(0)
    const before = limits.status()[0]?.tries ?? 0
    void second.does({ kind: 'call', calls: 10 })
    await expect.poll(() => limits.status()[0]?.parked).toBeGreaterThanOrEqual(9)
    // It probes, but had it to find out by itself, all of its calls would have been sent.
    expect((limits.status()[0]?.tries ?? 0) - before).toBeLessThan(10)
    await limits.close()
  })
})

describe('a lease', () => {
  /** Both ends on one thread; what one sends the other has at once. */
  function lease(limits: SharedLimits, slot: number) {
    const sent: LeaseMessage[] = []
    const received: GrantMessage[] = []
    const owner = limits.lease(slot, (message) => {
      received.push(message)
      worker.receive(message)
    })
    const worker = new LeasedLimits(owner.handle, (message) => {
      sent.push(message)
      owner.receive(message)
    })
    return { permits: worker.model('m').permits, worker, owner, sent, received }
  }

  test('is taken in batches and used again without a message', async () => {
    const { limits } = create({ maxConcurrency: 10 })
    const { permits, worker, sent, received } = lease(limits, 0)
    await Promise.all(Array.from({ length: 8 }, () => permits.acquire()))
    expect(sent).toHaveLength(1)
    expect(received.map(({ granted }) => granted)).toEqual([8])
    for (let round = 0; round < 100; round += 1) {
      permits.release()
      expect(permits.tryAcquire()).toBe(true)
    }
    expect(sent).toHaveLength(1)
    expect(limits.status()[0]).toMatchObject({ inFlight: 8 })
    await worker.close()
    await limits.close()
  })

  test('is recalled when a thread waits, and ends there when that has what it wanted', async () => {
    const { limits } = create({ maxConcurrency: 2 })
    const { permits, worker } = lease(limits, 0)
    const thread = openLimits(limits.handle(1), () => undefined)
    await Promise.all([permits.acquire(), permits.acquire()])
    permits.release()
    // Idle, but still leased: the thread has to wait until it is recalled.
    const mine = thread.model('m').permits
    expect(mine.tryAcquire()).toBe(false)
    await mine.acquire()
    const next = mine.acquire()
    const other = permits.acquire()
    permits.release()
    // Each holds none or one, so the one freed by the process goes to whoever has fewer.
    await other
    permits.release()
    await next
    expect(limits.status()[0]).toMatchObject({ inFlight: 2, waiting: 0 })
    await thread[Symbol.asyncDispose]()
    await worker.close()
    await limits.close()
  })

  test('shrinks with the limit that its refusals have cut', async () => {
    const { limits, changes } = create({ maxConcurrency: 10 })
    const { permits, worker } = lease(limits, 0)
    await Promise.all(Array.from({ length: 10 }, () => permits.acquire()))
    worker.model('m').lessons?.onRateLimited(0)
    await expect.poll(() => limits.status()[0]?.limit).toBe(8)
    expect(changes).toMatchObject([{ model: 'm', kind: 'concurrency', from: 10, to: 8 }])
    const ninth = permits.acquire()
    for (let count = 0; count < 2; count += 1) permits.release()
    await expect.poll(() => limits.status()[0]).toMatchObject({ inFlight: 8, waiting: 1 })
    permits.release()
    await ninth
    await expect.poll(() => limits.status()[0]).toMatchObject({ inFlight: 8, waiting: 0 })
    await worker.close()
    await limits.close()
  })

  test('brings the news that a backend answers again', async () => {
    const { limits } = create()
    const down = () => failure('model_overloaded')
    const [sick, well] = [new FakeBackend('b', down), new FakeBackend('b', () => goodReply)]
    const leases = [lease(limits, 0), lease(limits, 1)] as const
    const controller = new AbortController()
    const callTen = (backend: FakeBackend, { worker }: (typeof leases)[number]) => {
      const model = new Model(config(), [backend], { limits: worker.model('m') })
      return Promise.all(Array.from({ length: 10 }, () => model.call(ask, { signal: controller.signal })))
    }
    const parked = callTen(sick, leases[0])
    await expect.poll(() => limits.status()[0]?.parked).toBe(10)
    sick.mostInFlight = 0
    // Its own probes go one at a time: two at once are let go because of what the other one found. Again, because the
    // news may come while a probe of its own is about to fail.
    const news = async (): Promise<number> => {
      await callTen(well, leases[1])
      return sick.mostInFlight
    }
    await expect.poll(news).toBeGreaterThanOrEqual(2)
    controller.abort(new Error('enough'))
    await parked
    for (const { worker } of leases) await worker.close()
    await limits.close()
  })

  test('that was taken back is not listened to: a process that comes back cannot return what it no longer has', async () => {
    const { limits } = create({ maxConcurrency: 2 })
    const { permits, worker, owner } = lease(limits, 0)
    await permits.acquire()
    limits.reclaim(0)
    expect(limits.status()[0]).toMatchObject(idle)
    owner.receive({
      limit: 0,
      wanted: 5,
      rateWaiting: 0,
      inFlight: [3],
      parked: [0],
      returned: 1,
      calls: 0,
      tries: 0,
      answered: 0,
      refusals: [],
      gates: [],
    })
    expect(limits.status()[0]).toMatchObject(idle)
    await worker.close()
    await limits.close()
  })

  test('leaves nothing behind when both ends are closed, once or twice', async () => {
    const before = activeResources()
    for (let round = 0; round < 50; round += 1) {
      const { limits } = create({ maxConcurrency: 1 })
      const { permits, worker, owner } = lease(limits, 0)
      await permits.acquire()
      void permits.acquire()
      await Promise.all([worker.close(), worker.close(), owner.close(), limits.close(), limits.close()])
    }
    expect(await leftSince(before)).toEqual([])
  })

  test('divides the rates among processes, and all threads count as one', () => {
    const { limits } = create()
    const first = lease(limits, 0)
    expect(first.owner.handle.parties).toBe(1)
    limits.handle(1)
    limits.handle(2)
    expect(first.worker.model('m').parties[0]).toBe(2)
    limits.reclaim(1)
    expect(first.worker.model('m').parties[0]).toBe(2)
    limits.reclaim(2)
    expect(first.worker.model('m').parties[0]).toBe(1)
  })
})
