import { getEventListeners } from 'node:events'
import { describe, expect, test } from 'vitest'
import type { ErrorCode } from '../../errors/index.ts'
import { seededRandom } from '../../kit/index.ts'
import { FakeBackend, failure, goodReply, type Answer } from '../../../test/support/inference/fake-backend.ts'
import { FakeClock } from '../../../test/support/inference/fake-clock.ts'
import { plainRequest as ask } from '../../../test/support/inference/plain-request.ts'
import type { BackendReply, ModelRequest } from '../../apis/backend.ts'
import { modelConfigSchema, type ModelConfigInput } from '../config.ts'
import type { CallHooks, LimitChange, ModelReply } from '../model-client.ts'
import { Model } from './model.ts'

function open(backends: readonly FakeBackend[], config: Partial<ModelConfigInput> = {}) {
  const changes: LimitChange[] = []
  const model = new Model(modelConfigSchema.parse({ name: 'm', ...config }), backends, {
    onLimitChange: (change) => changes.push(change),
    random: () => 1,
  })
  return { model, changes }
}

/** Hooks that check that every wait that began has ended. */
class Hooks implements CallHooks {
  readonly #controller = new AbortController()
  waits = 0
  isWaiting = false

  get signal(): AbortSignal {
    return this.#controller.signal
  }

  abort(): void {
    this.#controller.abort(new Error('enough'))
  }

  onWaitStart(): void {
    if (this.isWaiting) throw new Error('already waiting')
    this.isWaiting = true
    this.waits += 1
  }

  onWaitEnd(): void {
    if (!this.isWaiting) throw new Error('not waiting')
    this.isWaiting = false
  }
}

/** Answers in this order, then well. */
const script = (...answers: Answer[]): FakeBackend => {
  return new FakeBackend('b', (_request, number) => answers[number - 1] ?? goodReply)
}

describe('a call', () => {
  test('without errors takes one try and no wait', async () => {
    using clock = new FakeClock()
    const backend = script()
    const { model } = open([backend], { price: { input: 1, output: 2 } })
    const hooks = new Hooks()
    const pending = model.call(ask, hooks)
    await clock.pass(10)
    expect(await pending).toEqual({
      ...goodReply,
      status: 'complete',
      model: 'm',
      backend: 'b',
      tries: 1,
      ms: 10,
      waitMs: 0,
      cost: 20 / 1_000_000,
    })
    expect(hooks.waits).toBe(0)
    expect(model.status()).toEqual({ name: 'm', limit: 64, inFlight: 0, waiting: 0, parked: 0, calls: 1, tries: 1 })
  })

  test.each<ErrorCode>([
    'model_connect',
    'model_timeout',
    'model_conflict',
    'model_rate_limited',
    'model_server_error',
    'model_overloaded',
    'model_truncated',
    'model_malformed',
  ])('is tried again after %s, with a retry event', async (code) => {
    using clock = new FakeClock()
    const backend = script(failure(code), failure(code))
    const { model } = open([backend])
    const hooks = new Hooks()
    const pending = model.call(ask, hooks)
    await clock.pass(60_000)
    const reply = await pending
    expect(reply).toMatchObject({ status: 'complete', tries: 3, ms: 10 })
    expect(reply.waitMs).toBeGreaterThan(500)
    expect(backend.requests.map(({ retry }) => retry)).toEqual([0, 1, 2])
    expect(hooks).toMatchObject({ waits: 2, isWaiting: false })
  })

  test.each<ErrorCode>(['model_auth', 'model_not_found', 'model_rejected', 'context_length', 'internal'])(
    'fails at once on %s',
    async (code) => {
      using clock = new FakeClock()
      const backend = script(failure(code))
      const pending = open([backend]).model.call(ask, new Hooks())
      await clock.pass(10)
      expect(await pending).toMatchObject({ status: 'failed', error: { code }, tries: 1 })
    },
  )

  test('ends when its tries are exhausted, with the last failure', async () => {
    using clock = new FakeClock()
    for (const [code, status] of [
      ['model_server_error', 'failed'],
      ['model_truncated', 'truncated'],
    ] as const) {
      const backend = new FakeBackend('b', () => failure(code))
      const pending = open([backend], { maxTries: 4 }).model.call(ask, new Hooks())
      await clock.pass(120_000)
      expect(await pending).toMatchObject({ status, error: { code }, tries: 4, backend: 'b' })
    }
  })

  test('waits as long as the server asks', async () => {
    using clock = new FakeClock()
    const backend = script(failure('model_rate_limited', 20_000))
    const pending = open([backend]).model.call(ask, new Hooks())
    await clock.pass(20_000)
    expect(backend.requests).toHaveLength(1)
    await clock.pass(2_020)
    expect(await pending).toMatchObject({ status: 'complete', tries: 2 })
  })
})

describe('a custom backend', () => {
  const sends: [string, () => Promise<BackendReply>][] = [
    [
      'throws at once',
      () => {
        throw failure('model_rejected')
      },
    ],
    ['answers without a promise', () => goodReply as unknown as Promise<BackendReply>],
    ['answers nothing', () => Promise.resolve(undefined as unknown as BackendReply)],
    ['answers without usage', () => Promise.resolve({ ...goodReply, usage: undefined } as unknown as BackendReply)],
  ]

  test.each(sends)('%s: its permit and its tokens are released', async (_, send) => {
    const backend = script()
    backend.send = send
    const { model } = open([backend], { maxConcurrency: 1, tokensPerMinute: 6000, maxTries: 1 })
    const hooks = new Hooks()
    // Each reserves more than half of what may be used at once.
    const large: ModelRequest = { ...ask, sampling: { maxTokens: 900 } }
    for (let call = 0; call < 3; call += 1) await model.call(large, hooks)
    expect(hooks.waits).toBe(0)
    expect(model.status()).toMatchObject({ inFlight: 0, waiting: 0, calls: 3 })
  })

  test('may throw any error, which is retried as a server error', async () => {
    using clock = new FakeClock()
    const backend = script()
    let tries = 0
    backend.send = async () => {
      tries += 1
      if (tries === 1) throw new TypeError('fetch failed')
      return goodReply
    }
    const pending = open([backend]).model.call(ask, new Hooks())
    await clock.pass(60_000)
    expect(await pending).toMatchObject({ status: 'complete', tries: 2 })
    backend.send = () => Promise.reject(new TypeError('fetch failed'))
    const failing = open([backend], { maxTries: 1 }).model.call(ask, new Hooks())
    expect(await failing).toMatchObject({
      error: { code: 'model_server_error', rawMessage: 'the backend b threw TypeError: fetch failed' },
    })
  })

  const { message, usage } = goodReply
  test.each<[string, unknown, RegExp]>([
    ['nothing', undefined, /b resolved with no reply/],
    ['no message', { ...goodReply, message: undefined }, /without a message of the assistant/],
    [
      'a message of the user',
      { ...goodReply, message: { ...message, role: 'user' } },
      /without a message of the assist/,
    ],
    ['a message of parts', { ...goodReply, message: { role: 'assistant', content: [] } }, /neither text nor null/],
    ['no usage', { ...goodReply, usage: undefined }, /usage has no number for each/],
    ['half of a usage', { ...goodReply, usage: { input: 1, output: 1 } }, /usage has no number for each/],
    [
      'a usage that is not a number',
      { ...goodReply, usage: { ...usage, output: NaN } },
      /usage has no number for each/,
    ],
  ])('that resolves with %s fails as a malformed reply', async (_, reply, why) => {
    using clock = new FakeClock()
    const backend = script()
    backend.send = async () => reply as BackendReply
    const pending = open([backend], { maxTries: 2 }).model.call(ask, new Hooks())
    await clock.pass(60_000)
    expect(await pending).toMatchObject({
      status: 'failed',
      tries: 2,
      error: { code: 'model_malformed', rawMessage: expect.stringMatching(why) },
    })
  })
})

describe('permits', () => {
  test('limit the requests in flight, and a waiting request is notified', async () => {
    using clock = new FakeClock()
    const backend = script()
    const { model } = open([backend], { maxConcurrency: 4 })
    const hooks = Array.from({ length: 20 }, () => new Hooks())
    const pending = Promise.all(hooks.map((each) => model.call(ask, each)))
    expect(model.status()).toMatchObject({ inFlight: 4, waiting: 16 })
    await clock.pass(100)
    expect((await pending).every((reply) => reply.status === 'complete')).toBe(true)
    expect(backend.mostInFlight).toBe(4)
    expect(hooks.filter(({ waits }) => waits === 1)).toHaveLength(16)
    expect(hooks.some(({ isWaiting }) => isWaiting)).toBe(false)
  })

  test('are reduced by a rate limit error and restored by replies, with an event for each', async () => {
    using clock = new FakeClock()
    const { model, changes } = open([script(failure('model_rate_limited'))], { maxConcurrency: 10 })
    const pending = model.call(ask, new Hooks())
    await clock.pass(2000)
    await pending
    expect(model.status().limit).toBe(8)
    for (let index = 0; index < 7; index += 1) {
      const next = model.call(ask, new Hooks())
      await clock.pass(10)
      await next
    }
    expect(changes).toMatchObject([
      { model: 'm', kind: 'concurrency', from: 10, to: 8 },
      { kind: 'concurrency', from: 8, to: 9 },
    ])
  })

  test('rate limits delay calls', async () => {
    using clock = new FakeClock()
    const backend = script()
    const { model } = open([backend], { requestsPerMinute: 6 })
    const hooks = [new Hooks(), new Hooks()]
    const pending = Promise.all(hooks.map((each) => model.call(ask, each)))
    await clock.pass(9_990)
    expect(backend.requests).toHaveLength(1)
    expect(model.status().waiting).toBe(1)
    await clock.pass(30)
    expect((await pending)[1]).toMatchObject({ status: 'complete', tries: 1 })
    expect(hooks.map(({ waits }) => waits)).toEqual([0, 1])
  })

  test('tokens are reserved by estimate and charged by usage', async () => {
    using clock = new FakeClock()
    const backend = script()
    const { model } = open([backend], { tokensPerMinute: 6000 })
    const large: ModelRequest = { ...ask, sampling: { maxTokens: 1000 } }
    const first = model.call(large, new Hooks())
    const second = model.call(large, new Hooks())
    await clock.pass(9)
    expect(backend.requests).toHaveLength(1)
    // The first used 15 tokens of its thousand, so the second need not wait for the rest.
    await clock.pass(400)
    expect(await Promise.all([first, second])).toMatchObject([{ status: 'complete' }, { status: 'complete' }])
  })

  test.each<ErrorCode>([
    'model_connect',
    'model_timeout',
    'model_rate_limited',
    'model_server_error',
    'model_rejected',
  ])('tokens are released after %s', async (code) => {
    using clock = new FakeClock()
    const { model } = open([script(failure(code))], { tokensPerMinute: 6000, maxTries: 1 })
    const large: ModelRequest = { ...ask, sampling: { maxTokens: 900 } }
    const failed = model.call(large, new Hooks())
    await clock.pass(10)
    expect(await failed).toMatchObject({ status: 'failed' })
    const hooks = new Hooks()
    const next = model.call(large, hooks)
    await clock.pass(10)
    expect(await next).toMatchObject({ status: 'complete' })
    expect(hooks.waits).toBe(0)
  })

  describe('a reply without usage is charged by', () => {
    const usage = { calls: 1, input: 0, cachedInput: 0, output: 0, reasoning: 0 }
    const prompt: ModelRequest = {
      ...ask,
      messages: [{ role: 'user', content: 'x'.repeat(800) }],
      sampling: { maxTokens: 100 },
    }
    /** Of the thousand tokens that may be used at once: what is left after one call, rounded down to the hundred of a second's. */
    const leftAfter = async (reply: Partial<BackendReply>): Promise<number> => {
      using clock = new FakeClock()
      const backend = script({ ...goodReply, usage, ...reply })
      const { model } = open([backend], { tokensPerMinute: 6000 })
      const first = model.call(prompt, new Hooks())
      await clock.pass(10)
      expect(await first).toMatchObject({ status: 'complete', usage })
      const second = model.call({ ...ask, sampling: { maxTokens: 980 } }, new Hooks())
      let seconds = 0
      for (; backend.requests.length < 2; seconds += 1) await clock.pass(1000)
      await second
      return 1000 - seconds * 100
    }

    test('the length of its text and its prompt', async () => {
      expect(await leftAfter({ message: { role: 'assistant', content: 'x'.repeat(100) } })).toBe(700)
      expect(await leftAfter({ message: { role: 'assistant', content: 'x'.repeat(2100) } })).toBe(200)
    })

    test('the number of its tokens, if captured', async () => {
      const tokens = { promptIds: new Int32Array(100), ids: new Int32Array(300), logprobs: new Float32Array(300) }
      expect(await leftAfter({ message: { role: 'assistant', content: 'x'.repeat(2000) }, tokens })).toBe(600)
    })
  })

  test('a failed try holds no tokens until the next try', async () => {
    using clock = new FakeClock()
    const { model } = open([script(failure('model_rate_limited', 20_000))], { tokensPerMinute: 6000 })
    const large: ModelRequest = { ...ask, sampling: { maxTokens: 900 } }
    const first = model.call(large, new Hooks())
    await clock.pass(1000)
    const second = model.call(large, new Hooks())
    await clock.pass(10)
    expect(await second).toMatchObject({ status: 'complete', waitMs: 0 })
    await clock.pass(60_000)
    expect(await first).toMatchObject({ status: 'complete', tries: 2 })
  })
})

describe('an abort', () => {
  /** Brings a call into a state, aborts it there, and checks that nothing is left of it. */
  const places: Record<
    string,
    { backend: () => FakeBackend; config?: Partial<ModelConfigInput>; busy?: number; ms: number }
  > = {
    'on the way': { backend: () => script(), ms: 5 },
    'waiting for a permit': { backend: () => script(), config: { maxConcurrency: 1 }, busy: 1, ms: 5 },
    'waiting to try again': { backend: () => script(failure('model_server_error')), ms: 50 },
    'waiting for the rate limit': { backend: () => script(), config: { requestsPerMinute: 1 }, busy: 1, ms: 50 },
    parked: {
      backend: () => new FakeBackend('b', () => failure('model_overloaded')),
      config: { maxTries: 2 },
      busy: 3,
      ms: 60,
    },
  }

  test.each(Object.entries(places))('%s', async (_name, { backend, config, busy = 0, ms }) => {
    using clock = new FakeClock()
    const { model } = open([backend()], config)
    const others = Array.from({ length: busy }, () => new Hooks())
    const otherCalls = others.map((each) => model.call(ask, each))
    const hooks = new Hooks()
    const pending = model.call(ask, hooks)
    await clock.pass(ms)
    for (const each of others) each.abort()
    await Promise.all(otherCalls)
    hooks.abort()
    expect(await pending).toMatchObject({ status: 'aborted', error: { code: 'cancelled' } })
    expect(hooks.isWaiting).toBe(false)
    expect(getEventListeners(hooks.signal, 'abort')).toHaveLength(0)
    expect(model.status()).toMatchObject({ inFlight: 0, waiting: 0, parked: 0 })
    await model.close()
    expect(clock.timers).toBe(0)
  })

  test('of a call that waits for a permit releases its tokens', async () => {
    using clock = new FakeClock()
    const backend = script()
    const { model } = open([backend], { tokensPerMinute: 6000, maxConcurrency: 1 })
    const asking = (maxTokens: number, hooks = new Hooks()) => model.call({ ...ask, sampling: { maxTokens } }, hooks)
    const first = asking(10)
    const hooks = new Hooks()
    const second = asking(900, hooks)
    hooks.abort()
    await second
    const third = asking(900)
    await clock.pass(20)
    expect(await Promise.all([first, third])).toMatchObject([{ status: 'complete' }, { status: 'complete' }])
  })

  test('of a call in flight releases its tokens', async () => {
    using clock = new FakeClock()
    const { model } = open([script()], { tokensPerMinute: 6000 })
    const large: ModelRequest = { ...ask, sampling: { maxTokens: 900 } }
    const hooks = new Hooks()
    const first = model.call(large, hooks)
    await clock.pass(5)
    hooks.abort()
    expect(await first).toMatchObject({ status: 'aborted', tries: 1 })
    const second = model.call(large, new Hooks())
    await clock.pass(10)
    expect(await second).toMatchObject({ status: 'complete', waitMs: 0 })
  })

  test('of a probe that waits for a permit makes the next request the probe', async () => {
    using clock = new FakeClock()
    const slow = (request: ModelRequest): boolean => request.sessionId === 'slow'
    const backend = new FakeBackend(
      'b',
      (request) => (slow(request) ? goodReply : failure('model_rate_limited')),
      (request) => (slow(request) ? 60_000 : 10),
    )
    const { model } = open([backend], { maxConcurrency: 3, maxTries: 2 })
    // The refusals cut the limit to two, and the two slow calls hold those permits.
    const busy = [0, 1].map(() => model.call({ ...ask, sessionId: 'slow' }, new Hooks()))
    const [first, second] = [new Hooks(), new Hooks()]
    const calls = [first, second].map((hooks) => model.call(ask, hooks))
    await clock.pass(5000)
    expect(model.status()).toMatchObject({ limit: 2, inFlight: 2, waiting: 1, parked: 1 })
    first.abort()
    second.abort()
    const third = new Hooks()
    calls.push(model.call(ask, third))
    await clock.pass(0)
    expect(model.status()).toMatchObject({ waiting: 1, parked: 0 })
    third.abort()
    await clock.pass(60_000)
    await Promise.all([...busy, ...calls])
    expect(model.status()).toMatchObject({ inFlight: 0, waiting: 0, parked: 0 })
  })

  test('before the start sends no request', async () => {
    const backend = script()
    const hooks = new Hooks()
    hooks.abort()
    expect(await open([backend]).model.call(ask, hooks)).toMatchObject({ status: 'aborted', tries: 0 })
    expect(backend.requests).toHaveLength(0)
  })
})

describe('several backends', () => {
  const session = (id: number): ModelRequest => ({ ...ask, sessionId: `s${id}` })

  test('sessions are distributed, and each stays with its backend', async () => {
    using clock = new FakeClock()
    const backends = ['a', 'b', 'c'].map((name) => new FakeBackend(name, () => goodReply))
    const { model } = open(backends)
    const round = async (): Promise<string[]> => {
      const pending = Promise.all(Array.from({ length: 30 }, (_, id) => model.call(session(id), new Hooks())))
      await clock.pass(10)
      return (await pending).map(({ backend }) => backend)
    }
    const first = await round()
    expect(['a', 'b', 'c'].map((name) => first.filter((each) => each === name).length)).toEqual([10, 10, 10])
    expect(await round()).toEqual(first)
    model.endSession('s0')
    expect((await round()).slice(1)).toEqual(first.slice(1))
  })

  test('a failed call goes to another backend at once, and its session stays there', async () => {
    using clock = new FakeClock()
    const bad = new FakeBackend('bad', () => failure('model_connect'))
    const good = new FakeBackend('good', () => goodReply)
    const { model } = open([bad, good])
    for (let id = 0; id < 4; id += 1) {
      const pending = model.call(session(id), new Hooks())
      await clock.pass(20)
      expect(await pending).toMatchObject({ status: 'complete', backend: 'good' })
    }
    const before = bad.requests.length
    for (let id = 0; id < 4; id += 1) {
      const pending = model.call(session(id), new Hooks())
      await clock.pass(10)
      expect(await pending).toMatchObject({ backend: 'good', tries: 1 })
    }
    expect(bad.requests).toHaveLength(before)
  })

  test('no request waits for a backend that is down while another works', async () => {
    using clock = new FakeClock()
    const down = new FakeBackend('down', () => failure('model_overloaded'))
    const up = new FakeBackend('up', () => goodReply)
    const { model } = open([down, up])
    const pending = Promise.all(Array.from({ length: 60 }, (_, id) => model.call(session(id), new Hooks())))
    await clock.pass(30)
    expect((await pending).map(({ backend }) => backend)).toEqual(Array.from({ length: 60 }, () => 'up'))
    expect(model.status().parked).toBe(0)
  })

  test('if all are down, the first backend to recover takes all requests', async () => {
    using clock = new FakeClock()
    let isUp = false
    const dead = new FakeBackend('dead', () => failure('model_connect'))
    const back = new FakeBackend('back', () => (isUp ? goodReply : failure('model_connect')))
    const { model } = open([dead, back], { maxConcurrency: 8 })
    const pending = Promise.all(Array.from({ length: 40 }, (_, id) => model.call(session(id), new Hooks())))
    await clock.pass(20_000)
    expect(model.status().parked).toBeGreaterThan(30)
    isUp = true
    await clock.pass(60_000)
    const replies = await pending
    expect(replies.every((reply) => reply.status === 'complete' && reply.backend === 'back')).toBe(true)
    expect(back.mostInFlight).toBeLessThanOrEqual(8)
    expect(model.status()).toMatchObject({ inFlight: 0, waiting: 0, parked: 0 })
  })
})

describe('a backend that refuses all requests for minutes', () => {
  test.each<ErrorCode>(['model_overloaded', 'model_connect', 'model_rate_limited'])(
    '%s delays calls, but fails none and takes few tries',
    async (code) => {
      using clock = new FakeClock()
      let isDown = false
      const backend = new FakeBackend('b', () => (isDown ? failure(code) : goodReply), 20)
      const { model, changes } = open([backend], { maxConcurrency: 32 })
      const offered = 600
      let done = 0
      const hooks = Array.from({ length: 100 }, () => new Hooks())
      const callers = hooks.map(async (each) => {
        const replies: ModelReply[] = []
        while (done < offered) {
          done += 1
          replies.push(await model.call(ask, each))
        }
        return replies
      })
      await clock.pass(50)
      isDown = true
      await clock.pass(5 * 60_000)
      const whileDown = model.status()
      expect(whileDown.parked).toBeGreaterThan(90)
      expect(whileDown.inFlight).toBeLessThanOrEqual(1)
      isDown = false
      await clock.pass(5 * 60_000)
      const replies = (await Promise.all(callers)).flat()
      expect(replies.filter(({ status }) => status !== 'complete')).toEqual([])
      expect(replies.length).toBeGreaterThanOrEqual(offered)
      expect(backend.requests.length).toBeLessThanOrEqual(1.2 * replies.length)
      expect(changes.map(({ kind }) => kind)).toContain('parked')
      expect(changes.map(({ kind }) => kind)).toContain('released')
      expect(hooks.some(({ isWaiting }) => isWaiting)).toBe(false)
      expect(model.status()).toMatchObject({ inFlight: 0, waiting: 0, parked: 0 })
    },
  )

  test('the last failure is in the parked event and in the notice to waiting calls', async () => {
    using clock = new FakeClock()
    const { model, changes } = open([new FakeBackend('b', () => failure('model_connect'))], { maxTries: 2 })
    const first = new Hooks()
    const pending = [model.call(ask, first)]
    await clock.pass(5000)
    expect(changes).toMatchObject([
      { kind: 'parked', why: expect.stringMatching(/^b failed 2 times .* The last failure: as the test says$/) },
    ])
    // This one made no try of its own.
    const late = new Hooks()
    const received: unknown[] = []
    pending.push(model.call(ask, Object.assign(late, { onParked: (error: unknown) => received.push(error) })))
    await clock.pass(0)
    expect(received).toMatchObject([{ code: 'model_connect', rawMessage: 'as the test says' }])
    expect(model.status().parkedBecause).toBe('as the test says')
    for (const hooks of [first, late]) hooks.abort()
    expect((await Promise.all(pending)).map(({ status }) => status)).toEqual(['aborted', 'aborted'])
    expect(model.status()).not.toHaveProperty('parkedBecause')
    await model.close()
  })

  test('the status counts probes, one per backend', async () => {
    using clock = new FakeClock()
    const backends = ['a', 'b'].map((name) => new FakeBackend(name, () => failure('model_overloaded'), 5000))
    const { model } = open(backends)
    const all = Array.from({ length: 20 }, () => new Hooks())
    const pending = all.map((hooks) => model.call(ask, hooks))
    expect(model.status()).not.toHaveProperty('probing')
    await clock.pass(60_000)
    for (let looks = 0; looks < 100 && model.status().probing !== 2; looks += 1) await clock.pass(500)
    expect(model.status()).toMatchObject({ inFlight: 2, probing: 2, parked: 18 })
    for (const hooks of all) hooks.abort()
    await clock.pass(5000)
    await Promise.all(pending)
    expect(model.status()).not.toHaveProperty('probing')
    await model.close()
  })

  test('timeouts always take tries, because the request itself may be too slow', async () => {
    using clock = new FakeClock()
    const backend = new FakeBackend('b', () => failure('model_timeout'))
    const pending = open([backend]).model.call(ask, new Hooks())
    await clock.pass(10 * 60_000)
    expect(await pending).toMatchObject({ status: 'failed', tries: 6, error: { code: 'model_timeout' } })
  })

  test('a rejected request is not counted as an outage', async () => {
    using clock = new FakeClock()
    let number = 0
    const backend = new FakeBackend('b', () => (number++ < 6 ? failure('model_overloaded') : failure('model_rejected')))
    const { model } = open([backend])
    const pending = model.call(ask, new Hooks())
    await clock.pass(60_000)
    expect(await pending).toMatchObject({ status: 'failed', error: { code: 'model_rejected' } })
    expect(model.status().parked).toBe(0)
  })

  test('endless 429s are waited out for maxRateLimitWaitMs, an outage for maxWaitMs', async () => {
    using clock = new FakeClock()
    const limits = { maxWaitMs: 200_000, maxRateLimitWaitMs: 20_000 }
    const busy = open([new FakeBackend('b', () => failure('model_rate_limited', 1000))], limits)
    const away = open([new FakeBackend('c', () => failure('model_connect'))], limits)
    const [refused, alone] = [new Hooks(), new Hooks()].map((hooks) => busy.model.call(ask, hooks))
    const parked = away.model.call(ask, new Hooks())
    const ended: string[] = []
    for (const [name, call] of Object.entries({ refused, alone, parked })) void call?.then(() => ended.push(name))
    await clock.pass(19_000)
    expect(ended).toEqual([])
    await clock.pass(2000)
    expect(ended.toSorted()).toEqual(['alone', 'refused'])
    const error = { code: 'model_rate_limited', data: { status: 429 }, cause: { rawMessage: 'as the test says' } }
    expect(await refused).toMatchObject({ status: 'failed', error })
    await clock.pass(178_000)
    expect(ended).toHaveLength(2)
    await clock.pass(2000)
    const lost = { code: 'model_overloaded', data: { status: 503 }, cause: { code: 'model_connect' } }
    expect(await parked).toMatchObject({ status: 'failed', error: lost })
    for (const { model } of [busy, away]) {
      expect(model.status()).toMatchObject({ parked: 0, waiting: 0, inFlight: 0 })
      await model.close()
    }
  })

  test('with maxTries 1, a call has one try', async () => {
    using clock = new FakeClock()
    const backend = new FakeBackend('b', () => failure('model_overloaded'))
    const { model } = open([backend], { maxTries: 1 })
    const pending = Promise.all(Array.from({ length: 12 }, () => model.call(ask, new Hooks())))
    await clock.pass(10)
    for (const reply of await pending) expect(reply).toMatchObject({ status: 'failed', tries: 1 })
  })
})

test('with all faults at once, each call ends, tries are limited, and no resource is left', async () => {
  using clock = new FakeClock()
  const random = seededRandom(7)
  const weather = (): Answer => {
    const draw = random()
    if (draw < 0.2) return failure('model_rate_limited', 1000)
    if (draw < 0.3) return failure('model_server_error')
    if (draw < 0.35) return failure('model_truncated')
    if (draw < 0.37) return failure('model_timeout')
    return goodReply
  }
  const backend = new FakeBackend('b', weather, 50)
  const { model } = open([backend], { maxConcurrency: 64 })
  const hooks = Array.from({ length: 3000 }, () => new Hooks())
  const pending = Promise.all(hooks.map((each) => model.call(ask, each)))
  await clock.pass(30 * 60_000)
  const replies = await pending
  expect(replies.filter(({ status }) => status === 'complete').length).toBeGreaterThan(2970)
  expect(Math.max(...replies.map(({ tries }) => tries))).toBeLessThanOrEqual(8)
  expect(backend.mostInFlight).toBeLessThanOrEqual(64)
  expect(hooks.some(({ isWaiting }) => isWaiting)).toBe(false)
  expect(model.status()).toMatchObject({ inFlight: 0, waiting: 0, parked: 0, calls: 3000 })
  await model.close()
  expect(clock.timers).toBe(0)
})

test('closing fails waiting calls, leaves the backends open, and is final', async () => {
  using clock = new FakeClock()
  const backend = new FakeBackend('b', () => failure('model_overloaded'))
  const { model } = open([backend], { maxTries: 2 })
  const pending = Promise.all(Array.from({ length: 5 }, () => model.call(ask, new Hooks())))
  await clock.pass(50)
  expect(model.status().parked).toBeGreaterThan(0)
  await model.close()
  await model[Symbol.asyncDispose]()
  await clock.pass(60_000)
  expect((await pending).map((reply) => (reply.status === 'complete' ? '' : reply.error.code))).toContain('closed')
  expect(backend.isClosed).toBe(false)
  expect(await model.call(ask, new Hooks())).toMatchObject({ status: 'failed', error: { code: 'closed' } })
  expect(clock.timers).toBe(0)
})

describe('changed backends', () => {
  test('share the limits of the model', async () => {
    using clock = new FakeClock()
    const [one, other] = [new FakeBackend('one', () => goodReply), new FakeBackend('other', () => goodReply)]
    const { model } = open([one], { maxConcurrency: 2, requestsPerMinute: 18 })
    const first = [model.call(ask, new Hooks()), model.call(ask, new Hooks())]
    await model.changeBackends([one, other])
    const third = model.call(ask, new Hooks())
    expect(model.status()).toMatchObject({ limit: 2, inFlight: 2, waiting: 1, calls: 3 })
    await clock.pass(10)
    expect(await Promise.all(first)).toMatchObject([{ backend: 'one' }, { backend: 'one' }])
    await clock.pass(10)
    expect(await third).toMatchObject({ status: 'complete' })
    // What was asked before counts for the rate, too: three at once, and then one every 3.3 s.
    const fourth = model.call(ask, new Hooks())
    await clock.pass(100)
    expect(model.status()).toMatchObject({ inFlight: 0, waiting: 1, tries: 3 })
    await clock.pass(4000)
    expect(await fourth).toMatchObject({ status: 'complete' })
    expect(other.requests.length).toBeGreaterThan(0)
  })

  test('keep a limit that a rate limit error reduced', async () => {
    using clock = new FakeClock()
    const { model } = open([script(failure('model_rate_limited'))], { maxConcurrency: 100 })
    const call = model.call(ask, new Hooks())
    await clock.pass(60_000)
    await call
    await model.changeBackends([script()])
    expect(model.status().limit).toBe(80)
  })

  test('finish the calls in flight at a removed backend', async () => {
    using clock = new FakeClock()
    const [gone, next] = [new FakeBackend('gone', () => goodReply, 500), new FakeBackend('next', () => goodReply)]
    const { model } = open([gone])
    const under = model.call(ask, new Hooks())
    let hasEnded = false
    const changed = model.changeBackends([next]).then(() => (hasEnded = true))
    const later = model.call(ask, new Hooks())
    await clock.pass(20)
    expect(await later).toMatchObject({ backend: 'next' })
    expect(hasEnded).toBe(false)
    await clock.pass(500)
    expect(await under).toMatchObject({ status: 'complete', backend: 'gone' })
    await changed
    expect(model.status()).toMatchObject({ inFlight: 0, tries: 2 })
  })

  test('report no parked event for a removed backend', async () => {
    using clock = new FakeClock()
    const gone = new FakeBackend('gone', () => failure('model_overloaded'), 500)
    const { model, changes } = open([gone])
    const calls = Array.from({ length: 10 }, () => model.call(ask, new Hooks()))
    void model.changeBackends([new FakeBackend('next', () => goodReply)])
    await clock.pass(10_000)
    for (const reply of await Promise.all(calls)) expect(reply).toMatchObject({ status: 'complete', backend: 'next' })
    expect(changes).toEqual([])
  })

  test('serve the calls that wait for a removed backend', async () => {
    using clock = new FakeClock()
    const gone = new FakeBackend('gone', () => failure('model_overloaded'))
    const { model } = open([gone])
    const calls = Array.from({ length: 5 }, () => model.call(ask, new Hooks()))
    await clock.pass(20)
    expect(model.status()).toMatchObject({ parked: 1, inFlight: 0 })
    await model.changeBackends([new FakeBackend('next', () => goodReply)])
    await clock.pass(20)
    expect(model.status()).toMatchObject({ parked: 0 })
    // The others wait for their next tries.
    await clock.pass(10_000)
    for (const reply of await Promise.all(calls)) expect(reply).toMatchObject({ status: 'complete', backend: 'next' })
    expect(model.status()).toMatchObject({ parked: 0, inFlight: 0 })
  })
})
