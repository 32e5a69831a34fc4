import { expect, test } from 'vitest'
import { UndeliveredRuns } from './undelivered-runs.ts'

test('clients that wait for one row share its request, which is forgotten with its delivery', () => {
  const runs = new UndeliveredRuns(60_000)
  const [one, other] = [runs.wait('row'), runs.wait('row')]
  expect(other.requestId).toBe(one.requestId)
  expect(runs.wait('another row').requestId).not.toBe(one.requestId)
  one.left()
  expect(runs.wait('row').requestId).toBe(one.requestId)
  other.delivered()
  expect(runs.wait('row').requestId).not.toBe(one.requestId)
})

test('nothing is left of rows that were delivered, and of those whose clients have all left', async () => {
  const runs = new UndeliveredRuns(1)
  for (let index = 0; index < 1_000; index += 1) {
    const clients = [runs.wait(`row ${index}`), runs.wait(`row ${index}`)]
    for (const client of clients) {
      if (index % 2 === 0) client.left()
      else client.delivered()
    }
  }
  await expect.poll(() => runs.size).toBe(0)
})
