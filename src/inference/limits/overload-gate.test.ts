import { getEventListeners } from 'node:events'
import { describe, expect, test } from 'vitest'
import { codeOf, failureOf } from '../_testing/code-of.ts'
import { FakeClock } from '../_testing/fake-clock.ts'
import { OverloadGate, type GateTicket } from './overload-gate.ts'
import { gateIntegers, gateTimes } from './shared-limits-cells.ts'

const never = new AbortController().signal

function start(maxConcurrency = 64, threshold = 3) {
  const events: string[] = []
  const gate = new OverloadGate({
    threshold,
    maxConcurrency,
    // Full steps: the first probe after 500 ms, then 1 s, 2 s, ...
    random: () => 1,
    onClose: (failures) => events.push(`closed after ${failures}`),
    onReopen: (_closedMs, parked) => events.push(`reopened with ${parked}`),
  })
  return { gate, events }
}

const entered = (gate: OverloadGate): GateTicket => {
  const ticket = gate.enter()
  if (!ticket) throw new Error('the gate is closed')
  return ticket
}

/** Fails until the gate closes. */
const close = (gate: OverloadGate, failures = 3): void => {
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
      void gate.park(never).then((ticket) => {
        order.push(index)
        if (ticket) gate.leave(ticket, 'overloaded')
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
    gate.leave((await first) as GateTicket, 'cancelled')
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
  /** A closed gate with people parked, and their tickets as they come. */
  async function reopened(clock: FakeClock, parked: number, maxConcurrency = 64) {
    const { gate, events } = start(maxConcurrency)
    close(gate)
    const tickets: GateTicket[] = []
    for (let index = 0; index < parked; index += 1) {
      void gate.park(never).then((ticket) => ticket && tickets.push(ticket))
    }
    await clock.pass(500)
    gate.leave(tickets.shift() as GateTicket, 'answered')
    await clock.pass(0)
    return { gate, events, tickets }
  }

  test('lets two go, then doubles with every round of answers', async () => {
    using clock = new FakeClock()
    const { gate, events, tickets } = await reopened(clock, 30)
    expect(events).toEqual(['closed after 3', 'reopened with 29'])
    const rounds: number[] = []
    while (tickets.length > 0) {
      const round = tickets.splice(0)
      rounds.push(round.length)
      for (const ticket of round) gate.leave(ticket, 'answered')
      await clock.pass(0)
    }
    expect(rounds).toEqual([2, 4, 8, 15])
    expect(gate.parked).toBe(0)
  })

  test('newcomers share the allowance', async () => {
    using clock = new FakeClock()
    const { gate, tickets } = await reopened(clock, 1)
    expect(tickets).toHaveLength(0)
    entered(gate)
    entered(gate)
    expect(gate.enter()).toBeUndefined()
  })

  test('single failures do not close it again, several in a row do', async () => {
    using clock = new FakeClock()
    const { gate, events, tickets } = await reopened(clock, 20)
    gate.leave(tickets.shift() as GateTicket, 'overloaded')
    gate.leave(tickets.shift() as GateTicket, 'answered')
    await clock.pass(0)
    expect(tickets).toHaveLength(3)
    for (const ticket of tickets.splice(0)) gate.leave(ticket, 'overloaded')
    expect(events.at(-1)).toBe('closed after 3')
    expect(gate.canEnter).toBe(false)
  })

  test('ends when as many may go as are allowed at all', async () => {
    using clock = new FakeClock()
    const { gate, tickets } = await reopened(clock, 100, 4)
    for (const ticket of tickets.splice(0)) gate.leave(ticket, 'answered')
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

describe('shared by two workers', () => {
  /** Gates over the same cells. What one announces the other follows when the test says. */
  function pair(clock: FakeClock) {
    const events: string[] = []
    const cells = {
      gate: new Int32Array(new SharedArrayBuffer(gateIntegers * 4)),
      gateTimes: new BigInt64Array(new SharedArrayBuffer(gateTimes * 8)),
      parked: new Int32Array(new SharedArrayBuffer(8)),
    }
    const at = (place: number): OverloadGate =>
      new OverloadGate({
        threshold: 3,
        maxConcurrency: 64,
        random: () => 1,
        onClose: () => events.push(`${place} closed`),
        onReopen: (_closedMs, parked) => events.push(`${place} reopened with ${parked}`),
        shared: { cells, place, announce: () => setTimeout(() => gates.forEach((gate) => gate.follow()), 1) },
      })
    const gates = [at(0), at(1)] as const
    const park = (gate: OverloadGate, count: number): GateTicket[] => {
      const tickets: GateTicket[] = []
      for (let index = 0; index < count; index += 1) {
        void gate.park(never).then((ticket) => ticket && tickets.push(ticket))
      }
      return tickets
    }
    return { one: gates[0], other: gates[1], at, park, events, news: () => clock.pass(1) }
  }

  test('failures count together, and what closes one closes both', () => {
    using clock = new FakeClock()
    const { one, other, events } = pair(clock)
    const early = entered(other)
    close(one, 2)
    other.leave(entered(other), 'overloaded')
    expect([one.enter(), other.enter()]).toEqual([undefined, undefined])
    expect(events).toEqual(['1 closed'])
    expect(other.leave(early, 'overloaded')).toBe(true)
  })

  test('one of both probes, and its answer lets both go on', async () => {
    using clock = new FakeClock()
    const { one, other, park, events, news } = pair(clock)
    close(one)
    await news()
    const [here, there] = [park(one, 5), park(other, 5)]
    await clock.pass(500)
    expect([...here, ...there]).toMatchObject([{ isProbe: true }])
    const [prober, ticket] = here[0] ? [one, here[0]] : [other, there[0] as GateTicket]
    prober.leave(ticket, 'overloaded')
    await clock.pass(1001)
    expect([...here, ...there]).toHaveLength(2)
    const second = [...here, ...there].find((probe) => probe !== ticket) as GateTicket
    const next = here.includes(second) ? one : other
    next.leave(second, 'answered')
    await news()
    // Each begins anew with two.
    expect([...here, ...there]).toHaveLength(6)
    expect(events.at(-1)).toContain('reopened with 8')
  })

  test('one that comes later learns that it is closed, and probes when that is due', async () => {
    using clock = new FakeClock()
    const { one, at, park } = pair(clock)
    close(one)
    const late = at(1)
    expect(late.canEnter).toBe(false)
    const tickets = park(late, 1)
    await clock.pass(500)
    expect(tickets).toMatchObject([{ isProbe: true }])
    expect(one.canEnter).toBe(false)
  })
})
