import { fileURLToPath } from 'node:url'
import { temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import { readinessOf } from '../../src/serve/rollouts/service-parts.ts'
import { RolloutServer, RolloutService } from '../../src/serve/index.ts'
import type { WorkerStatus } from '../../src/rollout/index.ts'
import { post } from '../support/serve/serve-process.ts'

test('a server whose only worker is blocked is not ready until the worker recovers', async () => {
  await using runs = await temporaryRuns()
  await using service = await RolloutService.open({
    environment: fileURLToPath(new URL('../support/serve/blocking-environment.ts', import.meta.url)),
    model: 'sim',
    workers: 1,
    preflight: false,
    run: { root: runs.root },
  })
  await using httpServer = await RolloutServer.open({ service, port: 0 })
  expect((await fetch(`${httpServer.url}/ready`)).status).toBe(200)
  // Longer than a worker may be silent before it gets no more work, shorter than until it is replaced.
  const reply = post(httpServer.url, { task: { blockMs: 6_000 } })
  await expect.poll(async () => (await fetch(`${httpServer.url}/ready`)).status).toBe(503)
  expect(await (await fetch(`${httpServer.url}/ready`)).json()).toEqual({
    status: 'not ready',
    why: expect.stringMatching(/^no worker is ready: worker \d+ is silent$/) as string,
  })
  expect((await fetch(`${httpServer.url}/health`)).status, 'the process itself lives').toBe(200)
  expect(await (await reply).json()).toMatchObject({ outcome: 'completed' })
  await expect.poll(async () => (await fetch(`${httpServer.url}/ready`)).status).toBe(200)
})

test('the readiness reply names the missing part', () => {
  const worker = (id: number, state: WorkerStatus['state']): WorkerStatus => ({
    id,
    kind: 'thread',
    state,
    running: 0,
    lag: { p99Ms: 0, maxMs: 0, meanMs: 0, utilization: 0 },
    memoryBytes: 0,
    restarts: 0,
  })
  const open = { state: 'open', hasStoreFailed: false, takesWork: true, workers: [] } as const
  expect(readinessOf(open)).toEqual({ isReady: true })
  expect(readinessOf({ ...open, workers: [worker(1, 'gone'), worker(2, 'ready')] })).toEqual({ isReady: true })
  const busy = { ...open, takesWork: false }
  expect(readinessOf({ ...busy, workers: [worker(-1, 'ready'), worker(1, 'gone'), worker(2, 'starting')] })).toEqual({
    isReady: false,
    why: 'no worker is ready: worker 1 is gone, worker 2 is starting',
  })
  expect(readinessOf(busy)).toEqual({ isReady: false, why: 'no worker is ready: none could be started so far' })
  expect(readinessOf({ ...open, hasStoreFailed: true })).toEqual({
    isReady: false,
    why: 'the store accepts no more records',
  })
  expect(readinessOf({ ...open, state: 'draining' })).toEqual({ isReady: false, why: 'the server is draining' })
})
