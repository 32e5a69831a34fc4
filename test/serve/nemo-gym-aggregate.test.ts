import { performance } from 'node:perf_hooks'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { largeAggregateBody } from '../../scripts/interop/nemo-gym/aggregate-cases.ts'
import { CodecPool } from '../../src/serve/codec/codec-pool.ts'
import { aggregateMetricsReply } from '../../src/serve/compat/nemo-gym/metrics/aggregate-metrics.ts'
import { TestServer } from '../support/serve/test-server.ts'

/** The longest time between two turns of the loop while this runs. */
async function longestTurnMs(work: () => Promise<unknown>): Promise<number> {
  const done = new AbortController()
  let longestMs = 0
  const watch = async (): Promise<void> => {
    let last = performance.now()
    while (!done.signal.aborted) {
      await nextTurn()
      const now = performance.now()
      longestMs = Math.max(longestMs, now - last)
      last = now
    }
  }
  const watching = watch()
  await work()
  done.abort()
  await watching
  return longestMs
}

test('aggregate metrics of 10,000 rows do not hold up the loop', async () => {
  await using server = await TestServer.start(() => 'short')
  await using pool = await CodecPool.start(server.service.info.folder, 1)
  const body = largeAggregateBody(10_000)
  let inline = ''
  const inlineMs = await longestTurnMs(async () => {
    inline = aggregateMetricsReply(Buffer.from(body))
  })
  let onThread = Buffer.alloc(0)
  const threadMs = await longestTurnMs(async () => {
    onThread = Buffer.concat(await Array.fromAsync(pool.aggregate([Buffer.from(body)])))
  })
  expect(onThread.toString() === inline).toBe(true)
  expect(threadMs / inlineMs).toBeLessThan(0.25)
})

test('a body that is refused on the thread comes back with the detail of a 422', async () => {
  await using server = await TestServer.start(() => 'short')
  await using pool = await CodecPool.start(server.service.info.folder, 1)
  const refused = Array.fromAsync(pool.aggregate([Buffer.from('{"verify_responses":[7]}')]))
  const detail =
    '[{"type":"dict_type","loc":["body","verify_responses",0],"msg":"Input should be a valid dictionary","input":7}]'
  await expect(refused).rejects.toMatchObject({ code: 'usage', data: { status: 422, detail } })
})
