import { expect, test } from 'vitest'
import { AbortScope } from './abort-scope.ts'
import { raced } from './raced.ts'
import { sleep } from './sleep.ts'
import { maxTimerMs, timerMs } from './timer-ms.ts'
import { within } from './within.ts'

const monthMs = 30 * 24 * 3_600_000

test('a delay is one that a timer can take', () => {
  expect([-5, 0, 250, monthMs, Infinity].map(timerMs)).toEqual([0, 0, 250, maxTimerMs, maxTimerMs])
})

test.each([monthMs, Infinity])('what may take %d ms is waited for', async (ms) => {
  const leaving = new AbortController()
  const { promise: work, resolve } = Promise.withResolvers<void>()
  const waits = [
    sleep(ms, leaving.signal).then(() => 'slept', String),
    within(work, ms).then(String),
    raced(new Promise<never>(() => {}), new AbortScope(leaving.signal, ms).signal).catch(String),
  ]
  // Longer than the millisecond that Node gives to what is too long for it.
  await sleep(5)
  leaving.abort('left')
  resolve()
  expect(await Promise.all(waits)).toEqual(['left', 'true', 'left'])
})
