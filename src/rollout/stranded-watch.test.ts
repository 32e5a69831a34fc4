import { expect, test } from 'vitest'
import type { ModelStatus } from '../inference/index.ts'
import { StrandedWatch } from './stranded-watch.ts'

const model = (given: Partial<ModelStatus>): ModelStatus => ({
  name: 'm',
  limit: 8,
  inFlight: 0,
  waiting: 0,
  parked: 0,
  calls: 0,
  tries: 0,
  ...given,
})

/** How many looks there were until it told, if it did so in a hundred. */
async function looksUntilTold(
  statusAt: (look: number) => readonly ModelStatus[],
  work = 2,
  waiting: readonly number[] = [],
): Promise<number> {
  let looks = 0
  const { promise, resolve } = Promise.withResolvers<void>()
  using _watch = new StrandedWatch({
    work: () => work,
    servers: () => waiting.map((each) => ({ waiting: each })),
    models: () => {
      looks += 1
      if (looks === 100) resolve()
      return statusAt(looks)
    },
    onStranded: resolve,
    tickMs: 1,
  })
  await promise
  return looks
}

test('tells when all that runs is parked, or goes as a probe', async () => {
  expect(await looksUntilTold(() => [model({ parked: 2 })])).toBe(15)
  expect(await looksUntilTold(() => [model({ parked: 1 }), model({ parked: 1 })])).toBe(15)
  const probing = (look: number) => [model(look % 2 === 0 ? { parked: 2 } : { parked: 1, inFlight: 1, probing: 1 })]
  expect(await looksUntilTold(probing)).toBe(15)
})

test('tells when all that runs waits for a tool server, or for a server and a backend', async () => {
  expect(await looksUntilTold(() => [model({})], 2, [2])).toBe(15)
  expect(await looksUntilTold(() => [model({ parked: 1 })], 2, [1])).toBe(15)
  expect(await looksUntilTold(() => [model({ inFlight: 1 })], 2, [1])).toBe(100)
})

test('a rollout that waits for two tool servers is one, and another may be at work', async () => {
  expect(await looksUntilTold(() => [model({})], 2, [1, 1])).toBe(100)
  expect(await looksUntilTold(() => [model({})], 2, [2, 2])).toBe(15)
})

test('each backend of a model may be probed at a time, also by the last of those that run', async () => {
  expect(await looksUntilTold(() => [model({ parked: 3, inFlight: 2, probing: 2 })], 5)).toBe(15)
  expect(await looksUntilTold(() => [model({ inFlight: 2, probing: 2 })])).toBe(15)
})

test('tells once it stays so', async () => {
  expect(await looksUntilTold((look) => [model(look <= 10 ? { inFlight: 2 } : { parked: 2 })])).toBe(25)
  expect(await looksUntilTold((look) => [model(look === 14 ? { inFlight: 2 } : { parked: 2 })])).toBe(29)
})

test.each([
  ['one runs a tool, or is scored', [model({ parked: 1 })]],
  ['one is answered by another model', [model({ parked: 2 }), model({ inFlight: 1 })]],
  ['the backend has more to answer than a probe', [model({ parked: 2, inFlight: 2 })]],
  ['one is answered though others are parked', [model({ parked: 1, inFlight: 1 })]],
  ['one waits for a permit', [model({ parked: 2, waiting: 1 })]],
  ['nobody is parked', [model({ inFlight: 2 })]],
])('tells nothing as long as %s', async (_, models) => {
  expect(await looksUntilTold(() => models)).toBe(100)
})
