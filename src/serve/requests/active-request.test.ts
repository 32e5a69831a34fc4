import { expect, test, vi } from 'vitest'
import type { RolloutRecord } from '../../schema/index.ts'
import { ActiveRequest } from './active-request.ts'

/** A request of one rollout. */
const requestWith = (id: string, graceMs: number, onAbandoned: () => void): ActiveRequest =>
  new ActiveRequest({
    request: { id, digest: '', firstTask: 0, tasks: 1, attempts: 1, isDetached: false, at: 0, outcomes: {} },
    accepted: Promise.resolve(),
    unsettled: 1,
    graceMs,
    isUnsettled: () => true,
    onAbandoned,
  })

function fakeTimers(): Disposable {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
  return { [Symbol.dispose]: () => vi.useRealTimers() }
}

test('without an owner a request continues for its grace period, even an infinite one', async () => {
  const abandoned: string[] = []
  const { promise, resolve } = Promise.withResolvers<void>()
  const open = (id: string, graceMs: number): ActiveRequest =>
    requestWith(id, graceMs, () => {
      abandoned.push(id)
      if (id === 'short') resolve()
    })
  for (const request of [open('month', 30 * 24 * 3_600_000), open('ever', Infinity), open('short', 5)]) {
    await request.read('owner').return()
  }
  await promise
  expect(abandoned).toEqual(['short'])
})

test('an owner that returns in time, or was failed by the server, keeps its request', async () => {
  using _timers = fakeTimers()
  let abandoned = 0
  const request = requestWith('one', 100, () => (abandoned += 1))
  await request.read('owner').return()
  vi.advanceTimersByTime(99)
  const back = request.read('owner')
  vi.advanceTimersByTime(1_000)
  expect(abandoned).toBe(0)
  back.release()
  vi.advanceTimersByTime(1_000)
  expect(abandoned, 'it was not the owner who left').toBe(0)
})

test('a request whose last rollout ends in the grace period is not abandoned', async () => {
  using _timers = fakeTimers()
  const request = requestWith('one', 100, () => expect.unreachable('it has ended'))
  await request.read('owner').return()
  expect(vi.getTimerCount()).toBe(1)
  expect(request.settle({ id: '0-0', outcome: 'completed' } as RolloutRecord)).toBe(true)
  expect(vi.getTimerCount()).toBe(0)
  vi.advanceTimersByTime(1_000)
})
