import { getEventListeners } from 'node:events'
import { describe, expect, test } from 'vitest'
import { codeOf, failureOf } from '../../../test/support/inference/code-of.ts'
import { FakeClock } from '../../../test/support/inference/fake-clock.ts'
import { CircuitBreaker, type BreakerPass } from './circuit-breaker.ts'

const never = new AbortController().signal

function start(maxConcurrency = 64, threshold = 3) {
  const events: string[] = []
  const breaker = new CircuitBreaker({
    threshold,
    maxConcurrency,
    // Full steps: the first probe after 500 ms, then 1 s, 2 s, ...
    random: () => 1,
    onOpen: (failures) => events.push(`open after ${failures}`),
    onRecover: (_openMs, parked) => events.push(`recovered with ${parked}`),
  })
  return { breaker, events }
}

const entered = (breaker: CircuitBreaker): BreakerPass => {
  const pass = breaker.enter()
  if (!pass) throw new Error('the breaker is open')
  return pass
}

/** Fails until the breaker opens. */
const open = (breaker: CircuitBreaker, failures = 3): void => {
  for (let index = 0; index < failures; index += 1) breaker.leave(entered(breaker), 'overloaded')
}

describe('opening', () => {
  test('needs several failures in a row; an answer restarts the count', () => {
    using _clock = new FakeClock()
    const { breaker, events } = start()
    open(breaker, 2)
    breaker.leave(entered(breaker), 'answered')
    open(breaker, 2)
    breaker.leave(entered(breaker), 'unclear')
    expect(breaker.canEnter).toBe(true)
    expect(breaker.leave(entered(breaker), 'overloaded')).toBe(true)
    expect(breaker.enter()).toBeUndefined()
    expect(events).toEqual(['open after 3'])
  })

  test('excuses requests already under way, but not unrelated failures', () => {
    using _clock = new FakeClock()
    const { breaker } = start()
    const [one, two] = [entered(breaker), entered(breaker)]
    open(breaker)
    expect(breaker.leave(one, 'overloaded')).toBe(true)
    expect(breaker.leave(two, 'unclear')).toBe(false)
  })
})

describe('while open', () => {
  test('one probe at a time, the oldest first, with growing delays', async () => {
    using clock = new FakeClock()
    const { breaker } = start()
    open(breaker)
    const order: number[] = []
    for (let index = 0; index < 5; index += 1) {
      void breaker.park(never).then((pass) => {
        order.push(index)
        if (pass) breaker.leave(pass, 'overloaded')
      })
    }
    const seen: number[] = []
    for (const ms of [499, 1, 999, 1, 1999, 1]) {
      await clock.pass(ms)
      seen.push(order.length)
    }
    expect(seen).toEqual([0, 1, 1, 2, 2, 3])
    expect(order).toEqual([0, 1, 2])
    await clock.pass(3_600_000)
    expect(order).toEqual([0, 1, 2, 3, 4])
  })

  test('if no request waits, the next to arrive is the probe', async () => {
    using clock = new FakeClock()
    const { breaker } = start()
    open(breaker)
    await clock.pass(500)
    expect(clock.timers).toBe(0)
    const probe = entered(breaker)
    expect(probe.isProbe).toBe(true)
    expect(breaker.enter()).toBeUndefined()
  })

  test('an abandoned probe is replaced at once by the next request', async () => {
    using clock = new FakeClock()
    const { breaker } = start()
    open(breaker)
    const [first, second] = [breaker.park(never), breaker.park(never)]
    await clock.pass(500)
    breaker.leave((await first) as BreakerPass, 'cancelled')
    expect(await second).toMatchObject({ isProbe: true })
  })

  test('a delay requested by the server is kept, up to a minute', async () => {
    using clock = new FakeClock()
    const { breaker } = start()
    open(breaker, 2)
    breaker.leave(entered(breaker), 'overloaded', 3_600_000)
    await clock.pass(59_999)
    expect(breaker.canEnter).toBe(false)
    await clock.pass(1)
    expect(breaker.canEnter).toBe(true)
  })

  test('an aborted request stops waiting at once', async () => {
    using clock = new FakeClock()
    const { breaker } = start()
    open(breaker)
    const controller = new AbortController()
    const parked = failureOf(() => breaker.park(controller.signal))
    expect(breaker.parked).toBe(1)
    controller.abort(new Error('enough'))
    expect(String(await parked)).toContain('enough')
    expect(breaker.parked).toBe(0)
    expect(getEventListeners(controller.signal, 'abort')).toHaveLength(0)
    expect(clock.timers).toBe(1)
  })

  test('shut() fails all waiting requests', async () => {
    using clock = new FakeClock()
    const { breaker } = start()
    open(breaker)
    const parked = codeOf(() => breaker.park(never))
    breaker.shut()
    expect(await parked).toBe('closed')
    expect(await codeOf(() => breaker.park(never))).toBe('closed')
    expect(clock.timers).toBe(0)
  })
})

describe('recovering', () => {
  /** An open breaker with parked requests, and their passes as they come. */
  async function recovered(clock: FakeClock, parked: number, maxConcurrency = 64) {
    const { breaker, events } = start(maxConcurrency)
    open(breaker)
    const passes: BreakerPass[] = []
    for (let index = 0; index < parked; index += 1) {
      void breaker.park(never).then((pass) => pass && passes.push(pass))
    }
    await clock.pass(500)
    breaker.leave(passes.shift() as BreakerPass, 'answered')
    await clock.pass(0)
    return { breaker, events, passes }
  }

  test('admits two requests, then doubles with every round of answers', async () => {
    using clock = new FakeClock()
    const { breaker, events, passes } = await recovered(clock, 30)
    expect(events).toEqual(['open after 3', 'recovered with 29'])
    const rounds: number[] = []
    while (passes.length > 0) {
      const round = passes.splice(0)
      rounds.push(round.length)
      for (const pass of round) breaker.leave(pass, 'answered')
      await clock.pass(0)
    }
    expect(rounds).toEqual([2, 4, 8, 15])
    expect(breaker.parked).toBe(0)
  })

  test('new requests share the allowance with waiting ones', async () => {
    using clock = new FakeClock()
    const { breaker, passes } = await recovered(clock, 1)
    expect(passes).toHaveLength(0)
    entered(breaker)
    entered(breaker)
    expect(breaker.enter()).toBeUndefined()
  })

  test('single failures do not open it again, several in a row do', async () => {
    using clock = new FakeClock()
    const { breaker, events, passes } = await recovered(clock, 20)
    breaker.leave(passes.shift() as BreakerPass, 'overloaded')
    breaker.leave(passes.shift() as BreakerPass, 'answered')
    await clock.pass(0)
    expect(passes).toHaveLength(3)
    for (const pass of passes.splice(0)) breaker.leave(pass, 'overloaded')
    expect(events.at(-1)).toBe('open after 3')
    expect(breaker.canEnter).toBe(false)
  })

  test('ends when the allowance reaches the limit', async () => {
    using clock = new FakeClock()
    const { breaker, passes } = await recovered(clock, 100, 4)
    for (const pass of passes.splice(0)) breaker.leave(pass, 'answered')
    await clock.pass(0)
    expect(breaker.parked).toBe(0)
    for (let index = 0; index < 50; index += 1) entered(breaker)
  })

  test('an answer to a request under way starts the recovery as well', async () => {
    using clock = new FakeClock()
    const { breaker, events } = start()
    const early = entered(breaker)
    open(breaker)
    const parked = breaker.park(never)
    breaker.leave(early, 'answered')
    expect(await parked).toMatchObject({ isProbe: false })
    expect(events.at(-1)).toBe('recovered with 1')
    expect(clock.timers).toBe(0)
  })

  test('a rejected request shows that the server works', async () => {
    using clock = new FakeClock()
    const { breaker } = start()
    open(breaker)
    await clock.pass(500)
    breaker.leave(entered(breaker), 'answered')
    expect(breaker.canEnter).toBe(true)
  })
})

describe('following another worker', () => {
  test('the breaker opens without an event of its own, and sends its own probes', async () => {
    using clock = new FakeClock()
    const { breaker, events } = start()
    const early = entered(breaker)
    breaker.follow(500)
    expect(breaker.leave(early, 'overloaded')).toBe(true)
    const parked = breaker.park(never)
    await clock.pass(500)
    expect(await parked).toMatchObject({ isProbe: true })
    expect(events).toEqual([])
  })

  test('a probing breaker recovers with the other one, and ignores the result of its own probe', async () => {
    using clock = new FakeClock()
    const { breaker, events } = start()
    breaker.follow(0)
    const probe = entered(breaker)
    const parked = [breaker.park(never), breaker.park(never)]
    breaker.follow(undefined)
    expect(await Promise.all(parked)).toMatchObject([{ isProbe: false }, { isProbe: false }])
    expect(breaker.leave(probe, 'overloaded')).toBe(true)
    expect([breaker.isOpen, clock.timers, events]).toEqual([false, 0, []])
  })

  test('a state that is already known changes nothing', () => {
    using clock = new FakeClock()
    const { breaker } = start()
    breaker.follow(undefined)
    expect(breaker.isRecovering).toBe(false)
    open(breaker)
    breaker.follow(60_000)
    expect(breaker.dueInMs).toBe(500)
    breaker.shut()
    expect(clock.timers).toBe(0)
  })
})
