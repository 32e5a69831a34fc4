import { expect, test } from 'vitest'
import { FakeBackend, goodReply } from '../../../test/support/inference/fake-backend.ts'
import { FakeClock } from '../../../test/support/inference/fake-clock.ts'
import { plainRequest as ask } from '../../../test/support/inference/plain-request.ts'
import { modelConfigSchema } from '../config.ts'
import type { SentCall } from '../model-client.ts'
import { Model } from './model.ts'

/** A model whose calls take these times, one after the other, and what it tells of those it sends. */
function answeringAfter(...latenciesMs: number[]) {
  let sent = 0
  const latencyMs = (): number => latenciesMs[sent++] as number
  const model = new Model(modelConfigSchema.parse({ name: 'm' }), [new FakeBackend('b', () => goodReply, latencyMs)])
  return async (): Promise<SentCall> => {
    const { promise, resolve } = Promise.withResolvers<SentCall>()
    void model.call(ask, { signal: new AbortController().signal, onSend: resolve })
    return promise
  }
}

test('a call is silent once it waits longer than the last answer took', async () => {
  using clock = new FakeClock()
  const send = answeringAfter(200, 60_000)
  await send()
  await clock.pass(201)
  const call = await send()
  await clock.pass(200)
  expect(call.isSilent).toBe(false)
  await clock.pass(1)
  expect(call.isSilent).toBe(true)
})

test('a call to a slow backend is not silent while the backend answers other calls', async () => {
  using clock = new FakeClock()
  const send = answeringAfter(60_000, 300)
  // The clock begins at 0, which is when a backend answered that never did.
  await clock.pass(1)
  const call = await send()
  await clock.pass(100)
  expect(call.isSilent).toBe(true)
  await send()
  await clock.pass(300)
  expect(call.isSilent).toBe(false)
})
