import { mkdtempDisposableSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { FakeBackend, failure, goodReply } from '../../test/support/inference/fake-backend.ts'
import { FakeClock } from '../../test/support/inference/fake-clock.ts'
import { plainRequest } from '../../test/support/inference/plain-request.ts'
import { testCertificate } from '../../test/support/inference/test-certificate.ts'
import { decodePool, PauseGate, resolveModelConfig } from '../inference/index.ts'
import { ServedModel } from './served-model.ts'

const unpaused = { env: {}, gateOf: () => new PauseGate() }

test('a model that is no longer listed stays open until its waiting calls have ended', async () => {
  using clock = new FakeClock()
  const backend = new FakeBackend('b', (_request, number) =>
    number === 1 ? failure('model_rate_limited', 120_000) : goodReply,
  )
  const config = resolveModelConfig({ model: { name: 'm', backends: [{ url: 'http://b.invalid/v1' }] }, env: {} })
  const served = new ServedModel(config, { ...unpaused, onLimitChange: () => {}, given: [backend], sharers: 1 })
  const call = served.client.call(plainRequest, { signal: new AbortController().signal })
  await clock.pass(100)
  const retired = served.retire()
  await clock.pass(90_000)
  expect(served.isClosed).toBe(false)
  await clock.pass(60_000)
  expect(await call).toMatchObject({ status: 'complete', tries: 2 })
  await clock.pass(60_000)
  await retired
  expect(clock.timers).toBe(0)
})

test('a failed change of a model is made when requested again', async () => {
  using folder = mkdtempDisposableSync(join(tmpdir(), 'millrace-ca-'))
  const caFile = join(folder.path, 'ca.pem')
  const configOf = (backend: object) =>
    resolveModelConfig({ model: { name: 'm', backends: [{ url: 'https://b.invalid/v1', ...backend }] }, env: {} })
  const before = configOf({})
  await using served = new ServedModel(before, { ...unpaused, onLimitChange: () => {}, given: undefined, sharers: 1 })
  const after = configOf({ caFile })
  expect(() => served.change(after, 1)).toThrow('ca.pem cannot be read')
  const [old] = served.client.backends
  writeFileSync(caFile, testCertificate)
  expect(served.change(after, 1)).toBe(true)
  expect(served.client.backends).toHaveLength(1)
  expect(served.client.backends).not.toContain(old)
})

test('a failed change of a model leaves no resource open', async () => {
  const configOf = (...backends: { url: string; caFile?: string }[]) =>
    resolveModelConfig({ model: { name: 'm', backends }, env: {} })
  const before = configOf({ url: 'http://a.invalid/v1' })
  const served = new ServedModel(before, { ...unpaused, onLimitChange: () => {}, given: undefined, sharers: 1 })
  const broken = configOf({ url: 'http://b.invalid/v1' }, { url: 'https://c.invalid/v1', caFile: 'none.pem' })
  expect(() => served.change(broken, 2)).toThrow('none.pem cannot be read')
  await served.close()
  // Threads are started for whoever still holds the pool.
  decodePool.warm()
  expect(decodePool.status().threads).toBe(0)
})
