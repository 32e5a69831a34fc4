import { expect, test } from 'vitest'
import { UndeliveredRuns } from './undelivered-runs.ts'

/** Rows whose requests are numbered in the order in which they were made. */
function numberedRuns(graceMs: number) {
  const runs = new UndeliveredRuns(graceMs)
  let made = 0
  return {
    wait: (key: string) =>
      runs.wait(
        key,
        () => `request ${(made += 1)}`,
        () => {},
      ),
  }
}

test('clients that wait for one row share its request, which is forgotten with its delivery', () => {
  const runs = numberedRuns(60_000)
  const [one, other] = [runs.wait('row'), runs.wait('row')]
  expect(other.requestId).toBe(one.requestId)
  expect(runs.wait('another row').requestId).not.toBe(one.requestId)
  one.left()
  expect(runs.wait('row').requestId).toBe(one.requestId)
  other.delivered()
  expect(runs.wait('row').requestId).not.toBe(one.requestId)
})

test('a client that could not be given its result has left, whatever it got instead', () => {
  const runs = numberedRuns(60_000)
  const client = runs.wait('row')
  client.left()
  client.delivered()
  expect(runs.wait('row').requestId).toBe(client.requestId)
})

test('nothing is left of rows that were delivered, and of those whose clients have all left', async () => {
  const runs = numberedRuns(1)
  const first = Array.from({ length: 1_000 }, (_, index) => {
    const clients = [runs.wait(`row ${index}`), runs.wait(`row ${index}`)] as const
    for (const client of clients) {
      if (index % 2 === 0) client.left()
      else client.delivered()
    }
    return clients[0].requestId
  })
  await new Promise((resolve) => setTimeout(resolve, 50))
  const again = first.map((_, index) => runs.wait(`row ${index}`).requestId)
  expect(again.filter((id) => first.includes(id))).toEqual([])
})
