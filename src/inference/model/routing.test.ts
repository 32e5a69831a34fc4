import { describe, expect, test } from 'vitest'
import { FakeBackend, failure, goodReply } from '../../../test/support/inference/fake-backend.ts'
import { FakeClock } from '../../../test/support/inference/fake-clock.ts'
import { plainRequest } from '../../../test/support/inference/plain-request.ts'
import { seededRandom } from '../../kit/index.ts'
import { type ModelConfigInput, modelConfigSchema } from '../config.ts'
import type { BackendStatus, ModelReply } from '../model-client.ts'
import { Model } from './model.ts'

type Routing = NonNullable<ModelConfigInput['routing']>

class Fleet {
  readonly backends: readonly FakeBackend[]
  readonly model: Model
  readonly down = new Set<string>()

  constructor(size: number, routing?: Routing, { latencyMs = 10, maxConcurrency = 20_000 } = {}) {
    this.backends = Array.from({ length: size }, (_, index) => {
      const name = `b${index}`
      return new FakeBackend(name, () => (this.down.has(name) ? failure('model_connect') : goodReply), latencyMs)
    })
    const config = modelConfigSchema.parse({ name: 'm', maxConcurrency, ...(routing && { routing }) })
    this.model = new Model(config, this.backends, { random: seededRandom(7) })
  }

  ask(sessionId: string, text = 'hi'): Promise<ModelReply> {
    const messages = [{ role: 'user' as const, content: text }]
    return this.model.call({ ...plainRequest, messages, sessionId }, { signal: new AbortController().signal })
  }

  /** One turn of so many sessions, all at once: which backend each had. */
  async turn(clock: FakeClock, sessions: number, ms = 10): Promise<string[]> {
    const pending = Promise.all(Array.from({ length: sessions }, (_, id) => this.ask(`s${id}`)))
    await clock.pass(ms)
    return (await pending).map(({ backend, status }) => (status === 'complete' ? backend : status))
  }

  status(): readonly BackendStatus[] {
    return this.model.status().backends ?? []
  }
}

const counts = (names: readonly string[]): number[] => {
  const byName = Map.groupBy(names, (name) => name)
  return Array.from(byName.values(), (each) => each.length)
}

const ascending = (numbers: readonly number[]): number[] => numbers.toSorted((one, other) => one - other)

describe('policies', () => {
  test('round-robin takes the next backend for each request, whatever its session', async () => {
    using clock = new FakeClock()
    const fleet = new Fleet(4, 'round-robin')
    const names: string[] = []
    for (let turn = 0; turn < 8; turn += 1) names.push(...(await fleet.turn(clock, 1)))
    expect(new Set(names.slice(0, 4)).size).toBe(4)
    expect(names.slice(4)).toEqual(names.slice(0, 4))
  })

  test('round-robin takes the next backend for requests that had to wait for a permit, too', async () => {
    using clock = new FakeClock()
    const fleet = new Fleet(2, 'round-robin', { maxConcurrency: 1 })
    const names: string[] = []
    const client = async (): Promise<void> => {
      for (let turn = 0; turn < 6; turn += 1) names.push((await fleet.ask('s')).backend)
    }
    const clients = Promise.all([client(), client(), client()])
    await clock.pass(1000)
    await clients
    expect(counts(names)).toEqual([9, 9])
  })

  test('least-loaded takes the backend with the fewest context tokens for each request', async () => {
    using clock = new FakeClock()
    const fleet = new Fleet(2, 'least-loaded')
    const long = fleet.ask('long', 'x'.repeat(4000))
    const short = Array.from({ length: 5 }, (_, id) => fleet.ask(`s${id}`))
    await clock.pass(10)
    const other = (await long).backend
    for (const reply of await Promise.all(short)) expect(reply.backend).not.toBe(other)
  })

  test('consistent-hash keeps sessions where they are when a backend goes, without remembering them', async () => {
    using clock = new FakeClock()
    const fleet = new Fleet(8, 'consistent-hash')
    const before = await fleet.turn(clock, 400)
    for (let id = 0; id < 400; id += 1) fleet.model.endSession(`s${id}`)
    expect(await fleet.turn(clock, 400)).toEqual(before)
    expect(Math.min(...counts(before))).toBeGreaterThan(25)
    fleet.down.add('b3')
    const after = await fleet.turn(clock, 400, 2000)
    for (const [id, name] of before.entries()) {
      if (name === 'b3') expect(after[id]).not.toBe('b3')
      else expect(after[id]).toBe(name)
    }
  })

  test('power-of-two spreads requests over all backends, and avoids a busy one', async () => {
    using clock = new FakeClock()
    const fleet = new Fleet(8, 'power-of-two')
    const names = await fleet.turn(clock, 800)
    expect(Math.max(...counts(names))).toBeLessThan(110)
    expect(Math.min(...counts(names))).toBeGreaterThan(90)
  })
})

describe('sticky', () => {
  test('10,000 sessions are spread over 64 backends within 10% of even, at once and one after the other', async () => {
    using clock = new FakeClock()
    const even = 10_000 / 64
    for (const atOnce of [10_000, 50]) {
      const fleet = new Fleet(64)
      for (let from = 0; from < 10_000; from += atOnce) {
        const pending = Array.from({ length: atOnce }, (_, id) => fleet.ask(`s${from + id}`))
        await clock.pass(10)
        await Promise.all(pending)
      }
      const sessions = fleet.status().map((each) => each.sessions)
      expect(Math.max(...sessions)).toBeLessThanOrEqual(1.1 * even)
      expect(Math.min(...sessions)).toBeGreaterThanOrEqual(0.9 * even)
    }
  })

  test('killing 8 of 64 backends moves only their sessions and loses none; back again, they take load again', async () => {
    using clock = new FakeClock()
    const fleet = new Fleet(64)
    const before = await fleet.turn(clock, 10_000)
    for (let index = 0; index < 8; index += 1) fleet.down.add(`b${index}`)
    const after = await fleet.turn(clock, 10_000, 5000)
    for (const [id, name] of before.entries()) {
      if (fleet.down.has(name)) expect(fleet.down.has(after[id] ?? '')).toBe(false)
      else expect(after[id]).toBe(name)
    }
    expect(after.filter((name) => !name.startsWith('b'))).toEqual([])
    fleet.down.clear()
    const names = new Set<string>()
    for (let second = 0; second < 20; second += 1) {
      const pending = Array.from({ length: 640 }, (_, id) => fleet.ask(`new-${second}-${id}`))
      await clock.pass(1000)
      for (const { backend } of await Promise.all(pending)) names.add(backend)
    }
    expect(names.size).toBe(64)
    expect(fleet.status().every(({ weight }) => weight === 1)).toBe(true)
  })

  test('a session leaves a backend that has more than the budget, and the break is counted there', async () => {
    using clock = new FakeClock()
    const fleet = new Fleet(2, { policy: 'sticky', budget: { absolute: 4, relative: 1.5 } })
    const [first, second] = await fleet.turn(clock, 2)
    // Nine sessions of the first backend, of which some have ended at the second.
    for (let id = 2; id < 20; id += 1) await Promise.all([fleet.ask(`s${id}`), clock.pass(10)])
    const pinned = Array.from({ length: 20 }, (_, id) => `s${id}`).filter((_, id) => id % 2 === 0)
    const pending = Promise.all(pinned.map((session) => fleet.ask(session)))
    await clock.pass(10)
    const names = (await pending).map(({ backend }) => backend)
    expect(new Set(names)).toEqual(new Set([first, second]))
    const breaks = fleet.status().map(({ affinityBreaks }) => affinityBreaks)
    const moved = names.filter((name) => name !== names[0]).length
    expect(moved).toBeGreaterThan(0)
    expect(Math.max(...breaks)).toBe(moved)
    expect(Math.min(...breaks)).toBe(0)
  })

  test('up to the absolute budget a session stays, however idle the others are', async () => {
    using clock = new FakeClock()
    const fleet = new Fleet(2)
    await fleet.turn(clock, 64)
    const [, ...others] = fleet.status().map(({ name }) => name)
    expect(others).toHaveLength(1)
    const home = (await fleet.turn(clock, 64)).map((name, id) => ({ id, name })).filter(({ name }) => name === 'b0')
    const pending = Promise.all(home.map(({ id }) => fleet.ask(`s${id}`)))
    await clock.pass(10)
    expect((await pending).every(({ backend }) => backend === 'b0')).toBe(true)
    expect(fleet.status().map(({ affinityBreaks }) => affinityBreaks)).toEqual([0, 0])
  })

  test('the context of a session counts as long as its last prompt and reply', async () => {
    using clock = new FakeClock()
    const fleet = new Fleet(2)
    await fleet.turn(clock, 1)
    const pending = fleet.ask('s0')
    await clock.pass(1)
    expect(ascending(fleet.status().map(({ contextTokens }) => contextTokens))).toEqual([0, 15])
    await clock.pass(10)
    await pending
    expect(fleet.status().map(({ contextTokens, inFlight }) => contextTokens + inFlight)).toEqual([0, 0])
  })

  test('requests that count tokens, and those in another API, count as load, too', async () => {
    using clock = new FakeClock()
    const counting = Promise.withResolvers<number>()
    const backends = ['a', 'b'].map((name) =>
      Object.assign(new FakeBackend(name, () => goodReply), { countTokens: () => counting.promise }),
    )
    const model = new Model(modelConfigSchema.parse({ name: 'm' }), backends)
    const hooks = { signal: new AbortController().signal }
    const counted = model.countTokens(plainRequest, hooks)
    const body = Buffer.alloc(400)
    const generated = model.call({ ...plainRequest, bodyApi: 'generate', body }, hooks)
    await clock.pass(1)
    const loads = model.status().backends ?? []
    expect(loads.map(({ inFlight }) => inFlight)).toEqual([1, 1])
    expect(ascending(loads.map(({ contextTokens }) => contextTokens))).toEqual([0, 100])
    counting.resolve(7)
    await clock.pass(10)
    expect([await counted, (await generated).status]).toEqual([7, 'complete'])
    expect((model.status().backends ?? []).map(({ inFlight }) => inFlight)).toEqual([0, 0])
  })

  test('an ended session is forgotten', async () => {
    using clock = new FakeClock()
    const fleet = new Fleet(2)
    await fleet.turn(clock, 10)
    expect(fleet.status().map(({ sessions }) => sessions)).toEqual([5, 5])
    for (let id = 0; id < 10; id += 1) fleet.model.endSession(`s${id}`)
    expect(fleet.status().map(({ sessions }) => sessions)).toEqual([0, 0])
  })

  test('a full cache or a queue of the engine counts as load', async () => {
    using clock = new FakeClock()
    const fleet = new Fleet(2)
    const [full, queued] = fleet.backends
    if (!full || !queued) throw new Error('two backends were opened')
    fleet.model.noteEngineLoad(full, { kvUsage: 1, queued: 0 })
    expect(ascending(counts(await fleet.turn(clock, 30)))).toEqual([10, 20])
    for (let id = 0; id < 30; id += 1) fleet.model.endSession(`s${id}`)
    fleet.model.noteEngineLoad(full, undefined)
    fleet.model.noteEngineLoad(queued, { kvUsage: 0.5, queued: 10 })
    const names = await fleet.turn(clock, 30)
    expect(names.filter((name) => name === 'b0')).toHaveLength(20)
  })
})

describe('failures', () => {
  test('a retry never goes back to the backend that just failed while another is usable', async () => {
    using clock = new FakeClock()
    const fleet = new Fleet(3)
    const asked: string[] = []
    const failing = fleet.backends.map(
      ({ name }) =>
        new FakeBackend(name, () => {
          asked.push(name)
          return failure('model_server_error')
        }),
    )
    const model = new Model(modelConfigSchema.parse({ name: 'm', maxTries: 12 }), failing, { random: seededRandom(1) })
    const pending = model.call(plainRequest, { signal: new AbortController().signal })
    await clock.pass(600_000)
    expect(await pending).toMatchObject({ status: 'failed', tries: 12 })
    for (const [index, name] of asked.entries()) expect(name).not.toBe(asked[index - 1])
  })

  test('nor does a retry of a request that counts tokens', async () => {
    using clock = new FakeClock()
    const asked: string[] = []
    const backends = ['a', 'b', 'c'].map((name) => {
      const countTokens = (): Promise<number> => {
        asked.push(name)
        return Promise.reject(failure('model_server_error'))
      }
      return Object.assign(new FakeBackend(name, () => goodReply), { countTokens })
    })
    const model = new Model(modelConfigSchema.parse({ name: 'm', maxTries: 9 }), backends, { random: seededRandom(1) })
    const counted = Promise.allSettled([model.countTokens(plainRequest, { signal: new AbortController().signal })])
    await clock.pass(600_000)
    expect(await counted).toMatchObject([{ status: 'rejected' }])
    expect(asked).toHaveLength(9)
    for (const [index, name] of asked.entries()) expect(name).not.toBe(asked[index - 1])
  })

  test('a backend that fails gets fewer new sessions, but never none, and recovers', async () => {
    using clock = new FakeClock()
    const backends = ['good', 'better', 'flaky'].map(
      (name) => new FakeBackend(name, (_, number) => (isFlaky(name, number) ? failure('model_truncated') : goodReply)),
    )
    let isBad = true
    const isFlaky = (name: string, number: number): boolean => isBad && name === 'flaky' && number <= 8
    const config = modelConfigSchema.parse({ name: 'm', maxConcurrency: 1000 })
    const model = new Model(config, backends, { random: seededRandom(3) })
    const weightOf = (): number => model.status().backends?.[2]?.weight ?? Number.NaN
    const ask = async (from: number, count: number): Promise<number> => {
      const pending = Array.from({ length: count }, (_, id) =>
        model.call({ ...plainRequest, sessionId: `s${from + id}` }, { signal: new AbortController().signal }),
      )
      await clock.pass(500)
      const replies = await Promise.all(pending)
      return replies.filter(({ backend }) => backend === 'flaky').length
    }
    await ask(0, 24)
    expect(weightOf()).toBeLessThan(0.12)
    expect(weightOf()).toBeGreaterThanOrEqual(0.1)
    isBad = false
    const share = await ask(1000, 300)
    expect(share).toBeGreaterThan(5)
    expect(share).toBeLessThan(50)
    await ask(2000, 300)
    expect(weightOf()).toBe(1)
    expect(await ask(3000, 300)).toBe(100)
  })

  test('if more than half of the backends fail, none is given less', async () => {
    using clock = new FakeClock()
    let isBad = true
    const answer = () => (isBad ? failure('model_truncated') : goodReply)
    const backends = ['a', 'b', 'c'].map((name) => new FakeBackend(name, answer))
    const model = new Model(modelConfigSchema.parse({ name: 'm' }), [
      ...backends,
      new FakeBackend('d', () => goodReply),
    ])
    const ask = (id: number) =>
      model.call({ ...plainRequest, sessionId: `s${id}` }, { signal: new AbortController().signal })
    await Promise.all([...Array.from({ length: 12 }, (_, id) => ask(id)), clock.pass(500)])
    isBad = false
    const status = model.status().backends ?? []
    expect(status.filter(({ weight }) => weight < 0.5)).toHaveLength(3)
    const pending = Promise.all(Array.from({ length: 40 }, (_, id) => ask(100 + id)))
    await clock.pass(100)
    expect(counts((await pending).map(({ backend }) => backend))).toEqual([10, 10, 10, 10])
  })
})
