/** What ends a service ends it also when nothing waits for a place, so that nobody comes along to notice. */
import { rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import { HeldAnswers, TestServer } from '../support/serve/test-server.ts'

const onSettled = (): void => {
  throw new Error('mine')
}

test('a result listener that throws fails the service', async () => {
  const answers = new HeldAnswers()
  await using server = await TestServer.start(answers.script, { onSettled })
  const { results } = await server.service.submit({ tasks: [{ word: 'apple' }, { word: 'pear' }] })
  await expect.poll(() => answers.asked.size).toBe(2)
  answers.release('apple')
  await expect(Array.fromAsync(results)).rejects.toThrow('mine')
  expect(server.service.failure.aborted).toBe(true)
  expect(server.service.readiness()).toMatchObject({ isReady: false })
})

test('a result listener that throws for a cancelled queued rollout fails the service', async () => {
  const answers = new HeldAnswers()
  await using server = await TestServer.start(answers.script, { onSettled, concurrency: 1 })
  const { results } = await server.service.submit({ tasks: [{ word: 'apple' }, { word: 'pear' }, { word: 'plum' }] })
  await expect.poll(() => answers.asked.size).toBe(1)
  expect(server.service.cancel('2-0')).toBe(true)
  await expect(Array.fromAsync(results)).rejects.toThrow('mine')
  expect(server.service.failure.aborted).toBe(true)
})

test('a store failure fails the service', async () => {
  await using runs = await temporaryRuns()
  const answers = new HeldAnswers()
  await using server = await TestServer.start(answers.script, { run: { root: runs.root, name: 'served' } })
  const { results } = await server.service.submit({ tasks: [{ word: 'apple' }] })
  await expect.poll(() => answers.asked.size).toBe(1)
  // Long tasks go into files there.
  const blobs = join(runs.root, 'served', 'blobs')
  rmSync(blobs, { recursive: true, force: true })
  writeFileSync(blobs, '')
  const another = server.service.submit({ tasks: [{ word: 'long '.repeat(60_000) }] })
  await expect(another).rejects.toMatchObject({ code: 'store_failed' })
  await expect(Array.fromAsync(results)).rejects.toMatchObject({ code: 'store_failed' })
  expect(server.service.status().state).toBe('failed')
})
