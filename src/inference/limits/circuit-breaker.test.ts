import { getEventListeners } from 'node:events'
import { describe, expect, test } from 'vitest'
import { codeOf, failureOf } from '../../../test/support/inference/code-of.ts'
import { FakeClock } from '../../../test/support/inference/fake-clock.ts'
import { CircuitBreaker, type BreakerPermit } from './overload.ts'

const never = new AbortController().signal

function start(maxConcurrency = 64, threshold = 3) {
  const events: string[] = []
  const gate = new CircuitBreaker({
    threshold,
    maxConcurrency,
    // Full steps: the first probe after 500 ms, then 1 s, 2 s, ...
    random: () => 1,
    onClose: (failures) => events.push(`closed after ${failures}`),
    onReopen: (_closedMs, parked) => events.push(`reopened with ${parked}`),
  })
  return { gate, events }
}

const entered = (gate: CircuitBreaker): BreakerPermit => {
  const permit = gate.enter()
  if (!permit) throw new Error('the gate is closed')
  return permit
}

/** Fails until the gate closes. */
const close = (gate: CircuitBreaker, failures = 3): void => {
  for (let index = 0; index < failures; index += 1) gate.leave(entered(gate), 'overloaded')
}

describe('closing', () => {
  test('takes several failures in a row; an answer starts the count anew', () => {
    using _clock = new FakeClock()
    const { gate, events } = start()
    close(gate, 2)
    gate.leave(entered(gate), 'answered')
    close(gate, 2)
    gate.leave(entered(gate), 'unclear')
    expect(gate.canEnter).toBe(true)
    expect(gate.leave(entered(gate), 'overloaded')).toBe(true)
    expect(gate.enter()).toBeUndefined()
    expect(events).toEqual(['closed after 3'])
  })

  test('excuses what was on its way, but not what has nothing to do with it', () => {
    using _clock = new FakeClock()
    const { gate } = start()
    const [one, two] = [entered(gate), entered(gate)]
    close(gate)
    expect(gate.leave(one, 'overloaded')).toBe(true)
    expect(gate.leave(two, 'unclear')).toBe(false)
  })
})

describe('while closed', () => {
  test('one probe at a time, the oldest first, less and less often', async () => {
    using clock = new FakeClock()
    const { gate } = start()
    close(gate)
    const order: number[] = []
    for (let index = 0; index < 5; index += 1) {
      void gate.park(never).then((permit) => {
        order.push(index)
        if (permit) gate.leave(permit, 'overloaded')
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

  test('without anybody parked the next to come is the probe', async () => {
    using clock = new FakeClock()
    const { gate } = start()
    close(gate)
    await clock.pass(500)
    expect(clock.timers).toBe(0)
    const probe = entered(gate)
    expect(probe.isProbe).toBe(true)
    expect(gate.enter()).toBeUndefined()
  })

  test('a probe that is given up is followed by the next one at once', async () => {
    using clock = new FakeClock()
    const { gate } = start()
    close(gate)
    const [first, second] = [gate.park(never), gate.park(never)]
    await clock.pass(500)
    gate.leave((await first) as BreakerPermit, 'cancelled')
    expect(await second).toMatchObject({ isProbe: true })
  })

  test('a pause that the server asks for is kept, up to a minute', async () => {
    using clock = new FakeClock()
    const { gate } = start()
    close(gate, 2)
    gate.leave(entered(gate), 'overloaded', 3_600_000)
    await clock.pass(59_999)
    expect(gate.canEnter).toBe(false)
    await clock.pass(1)
    expect(gate.canEnter).toBe(true)
  })

  test('who gives up leaves at once', async () => {
    using clock = new FakeClock()
    const { gate } = start()
    close(gate)
    const controller = new AbortController()
    const parked = failureOf(() => gate.park(controller.signal))
    expect(gate.parked).toBe(1)
    controller.abort(new Error('enough'))
    expect(String(await parked)).toContain('enough')
    expect(gate.parked).toBe(0)
    expect(getEventListeners(controller.signal, 'abort')).toHaveLength(0)
    expect(clock.timers).toBe(1)
  })

  test('shutting turns everybody away', async () => {
    using clock = new FakeClock()
    const { gate } = start()
    close(gate)
    const parked = codeOf(() => gate.park(never))
    gate.shut()
    expect(await parked).toBe('closed')
    expect(await codeOf(() => gate.park(never))).toBe('closed')
    expect(clock.timers).toBe(0)
  })
})

describe('reopening', () => {
  /** A closed gate with people parked, and their permits as they come. */
  async function reopened(clock: FakeClock, parked: number, maxConcurrency = 64) {
    const { gate, events } = start(maxConcurrency)
    close(gate)
    const permits: BreakerPermit[] = []
    for (let index = 0; index < parked; index += 1) {
      void gate.park(never).then((permit) => permit && permits.push(permit))
    }
    await clock.pass(500)
    gate.leave(permits.shift() as BreakerPermit, 'answered')
    await clock.pass(0)
    return { gate, events, permits }
  }

  test('lets two go, then doubles with every round of answers', async () => {
    using clock = new FakeClock()
    const { gate, events, permits } = await reopened(clock, 30)
    expect(events).toEqual(['closed after 3', 'reopened with 29'])
    const rounds: number[] = []
    while (permits.length > 0) {
      const round = permits.splice(0)
      rounds.push(round.length)
      for (const permit of round) gate.leave(permit, 'answered')
      await clock.pass(0)
    }
    expect(rounds).toEqual([2, 4, 8, 15])
    expect(gate.parked).toBe(0)
  })

  test('newcomers share the allowance', async () => {
    using clock = new FakeClock()
    const { gate, permits } = await reopened(clock, 1)
    expect(permits).toHaveLength(0)
    entered(gate)
    entered(gate)
    expect(gate.enter()).toBeUndefined()
  })

  test('single failures do not close it again, several in a row do', async () => {
    using clock = new FakeClock()
    const { gate, events, permits } = await reopened(clock, 20)
    gate.leave(permits.shift() as BreakerPermit, 'overloaded')
    gate.leave(permits.shift() as BreakerPermit, 'answered')
    await clock.pass(0)
    expect(permits).toHaveLength(3)
    for (const permit of permits.splice(0)) gate.leave(permit, 'overloaded')
    expect(events.at(-1)).toBe('closed after 3')
    expect(gate.canEnter).toBe(false)
  })

  test('ends when as many may go as are allowed at all', async () => {
    using clock = new FakeClock()
    const { gate, permits } = await reopened(clock, 100, 4)
    for (const permit of permits.splice(0)) gate.leave(permit, 'answered')
    await clock.pass(0)
    expect(gate.parked).toBe(0)
    for (let index = 0; index < 50; index += 1) entered(gate)
  })

  test('an answer to something that was still on its way reopens it, too', async () => {
    using clock = new FakeClock()
    const { gate, events } = start()
    const early = entered(gate)
    close(gate)
    const parked = gate.park(never)
    gate.leave(early, 'answered')
    expect(await parked).toMatchObject({ isProbe: false })
    expect(events.at(-1)).toBe('reopened with 1')
    expect(clock.timers).toBe(0)
  })

  test('a request that the server refuses shows that it works', async () => {
    using clock = new FakeClock()
    const { gate } = start()
    close(gate)
    await clock.pass(500)
    gate.leave(entered(gate), 'answered')
    expect(gate.canEnter).toBe(true)
  })
})

describe('following another worker', () => {
  test('a gate closes with it, unreported, and probes by itself', async () => {
    using clock = new FakeClock()
    const { gate, events } = start()
    const early = entered(gate)
    gate.follow(500)
    expect(gate.leave(early, 'overloaded')).toBe(true)
    const parked = gate.park(never)
    await clock.pass(500)
    expect(await parked).toMatchObject({ isProbe: true })
    expect(events).toEqual([])
  })

  test('a gate that probes recovers with it, and its own probe then says nothing more', async () => {
    using clock = new FakeClock()
    const { gate, events } = start()
    gate.follow(0)
    const probe = entered(gate)
    const parked = [gate.park(never), gate.park(never)]
    gate.follow(undefined)
    expect(await Promise.all(parked)).toMatchObject([{ isProbe: false }, { isProbe: false }])
    expect(gate.leave(probe, 'overloaded')).toBe(true)
    expect([gate.isClosed, clock.timers, events]).toEqual([false, 0, []])
  })

  test('news that it knows already changes nothing', () => {
    using clock = new FakeClock()
    const { gate } = start()
    gate.follow(undefined)
    expect(gate.isRecovering).toBe(false)
    close(gate)
    gate.follow(60_000)
    expect(gate.dueInMs).toBe(500)
    gate.shut()
    expect(clock.timers).toBe(0)
  })
})
