import { expect, test } from 'vitest'
import { FakeClock } from '../../../test/support/inference/fake-clock.ts'
import { ask } from '../../../test/support/inference/open-backend.ts'
import type { BackendReply } from '../../apis/index.ts'
import type { Message } from '../../schema/index.ts'
import { Simulator } from './simulator.ts'

const words = (count: number, word: string): Message => ({ role: 'user', content: `${word} `.repeat(count) })

async function send(simulator: Simulator, clock: FakeClock, messages: readonly Message[]): Promise<BackendReply> {
  const reply = simulator.send(ask({ messages }))
  await clock.pass(60_000)
  return await reply
}

test('the time to the first token grows with the part of the prompt that is not in the cache', async () => {
  using clock = new FakeClock()
  await using simulator = new Simulator({ prefillMs: 1000, prefixCacheTokens: 100_000 })
  const first = [words(1000, 'one')]
  const cold = await send(simulator, clock, first)
  expect(cold.usage.cachedInput).toBe(0)
  expect(cold.firstTokenMs).toBeCloseTo(cold.usage.input)
  const next = [...first, cold.message, words(10, 'two')]
  const warm = await send(simulator, clock, next)
  expect(warm.usage.cachedInput).toBeGreaterThanOrEqual(cold.usage.input)
  expect(warm.firstTokenMs).toBeCloseTo(warm.usage.input - warm.usage.cachedInput)
  expect(warm.firstTokenMs).toBeLessThan(30)
  // Another beginning shares nothing, even if it ends alike.
  const other = await send(simulator, clock, [words(1000, 'three'), cold.message, words(10, 'two')])
  expect(other.usage.cachedInput).toBe(0)
})

test('the cache holds as many tokens as it is given, and drops the conversation used least recently', async () => {
  using clock = new FakeClock()
  await using simulator = new Simulator({ prefillMs: 1, prefixCacheTokens: 2500 })
  const [one, two, three] = ['one', 'two', 'three'].map((word) => [words(1000, word)])
  if (!one || !two || !three) throw new Error('there are three conversations')
  await send(simulator, clock, one)
  await send(simulator, clock, two)
  await send(simulator, clock, one)
  await send(simulator, clock, three)
  expect((await send(simulator, clock, one)).usage.cachedInput).toBeGreaterThan(1000)
  expect((await send(simulator, clock, two)).usage.cachedInput).toBe(0)
})

test('without a cache the whole prompt is charged for each time', async () => {
  using clock = new FakeClock()
  await using simulator = new Simulator({ prefillMs: 1000 })
  for (let turn = 0; turn < 2; turn += 1) {
    const { usage, firstTokenMs } = await send(simulator, clock, [words(500, 'one')])
    expect(usage.cachedInput).toBe(0)
    expect(firstTokenMs).toBeCloseTo(usage.input)
  }
})

test('more requests than run at once wait their turn', async () => {
  using clock = new FakeClock()
  await using simulator = new Simulator({ ttftMs: 100, spread: 0, maxRunning: 2 })
  const ended: number[] = []
  for (let request = 0; request < 5; request += 1) {
    void simulator.send(ask({ messages: [words(1, 'hi')] })).then(() => ended.push(request))
  }
  await clock.pass(50)
  expect([simulator.engine.running, simulator.engine.queued]).toEqual([2, 3])
  await clock.pass(60)
  expect(ended).toEqual([0, 1])
  await clock.pass(100)
  expect(ended).toEqual([0, 1, 2, 3])
  await clock.pass(100)
  expect(ended).toEqual([0, 1, 2, 3, 4])
  expect([simulator.engine.running, simulator.engine.queued]).toEqual([0, 0])
})
