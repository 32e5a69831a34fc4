import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { WeightWatch, type VersionAnswer } from './weight-watch.ts'

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
})

afterEach(() => {
  vi.useRealTimers()
})

/** Questions that a test answers, in order. */
class Questions {
  readonly asked: PromiseWithResolvers<VersionAnswer>[] = []
  readonly ask = (): Promise<VersionAnswer> => {
    const question = Promise.withResolvers<VersionAnswer>()
    this.asked.push(question)
    return question.promise
  }

  /** Has time pass and answers the last question. */
  async answer(answer: VersionAnswer, afterMs = 0): Promise<void> {
    await vi.advanceTimersByTimeAsync(afterMs)
    this.asked.at(-1)?.resolve(answer)
    await vi.advanceTimersByTimeAsync(0)
  }
}

test('many replies cause one version request, ten seconds after the first of them', async () => {
  const questions = new Questions()
  const watch = new WeightWatch(questions.ask)
  expect(watch.seen).toBeUndefined()
  await questions.answer({ version: '1' })
  const before = watch.seen
  const versions = Promise.all(Array.from({ length: 100 }, () => watch.versionOf(watch.ended(before))))
  await vi.advanceTimersByTimeAsync(9_999)
  expect(questions.asked).toHaveLength(1)
  await questions.answer({ version: '1' }, 1)
  expect(new Set(await versions)).toEqual(new Set(['1']))
  await vi.advanceTimersByTimeAsync(60_000)
  expect(questions.asked).toHaveLength(2)
})

test('a reply that ends during a version request waits for the next one', async () => {
  const questions = new Questions()
  const watch = new WeightWatch(questions.ask)
  void watch.seen
  await questions.answer({ version: '1' })
  const first = watch.versionOf(watch.ended(watch.seen))
  await vi.advanceTimersByTimeAsync(10_000)
  const second = watch.versionOf(watch.ended(watch.seen))
  // The question takes so long that the next one is due before its answer.
  await questions.answer({ version: '1' }, 15_000)
  expect(await first).toBe('1')
  expect(questions.asked).toHaveLength(3)
  await questions.answer({ version: '2' })
  expect(await second).toBeUndefined()
})

test('a silent server is not asked more often, and one without the endpoint never again', async () => {
  const questions = new Questions()
  const watch = new WeightWatch(questions.ask)
  void watch.seen
  await questions.answer('unknown')
  for (let request = 0; request < 10; request += 1) void watch.seen
  await vi.advanceTimersByTimeAsync(9_999)
  expect(questions.asked).toHaveLength(1)
  await questions.answer('none', 1)
  void watch.seen
  expect(await watch.versionOf(watch.ended({ version: '1' }))).toBeUndefined()
  await vi.advanceTimersByTimeAsync(60_000)
  expect(questions.asked).toHaveLength(2)
})

test('closing the watch ends the wait', async () => {
  const watch = new WeightWatch(() => Promise.resolve({ version: '1' }))
  const version = watch.versionOf(watch.ended({ version: '1' }))
  watch.close()
  expect(await version).toBeUndefined()
  expect(vi.getTimerCount()).toBe(0)
})
