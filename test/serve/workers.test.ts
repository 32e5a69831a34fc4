import { fileURLToPath } from 'node:url'
import { temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import { RolloutServer, RolloutService } from '../../src/serve/index.ts'
import type { WorkerStatus } from '../../src/rollout/index.ts'

const environment = fileURLToPath(new URL('../support/serve/blocking-environment.ts', import.meta.url))

async function ask(url: string, method: string, body?: unknown): Promise<{ status: number; body: unknown }> {
  const reply = await fetch(url, {
    method,
    ...(body !== undefined && { headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) }),
  })
  return { status: reply.status, body: await reply.json() }
}

test('the workers of a server can be listed, resized and restarted over HTTP', async () => {
  await using runs = await temporaryRuns()
  await using service = await RolloutService.open({
    environment,
    model: 'sim',
    workers: 1,
    supervision: { replaceAfterMs: 60_000 },
    preflight: false,
    run: { root: runs.root },
  })
  await using httpServer = await RolloutServer.open({ service, port: 0 })
  const workers = `${httpServer.url}/v1/workers`
  const ready = async (): Promise<string[]> => {
    const { body } = await ask(workers, 'GET')
    const { workers: list } = body as { workers: WorkerStatus[] }
    return list.map(({ id, state, restarts }) => `${id} ${state} ${restarts}`)
  }
  expect(await ready()).toEqual(['1 ready 0'])
  expect((await ask(workers, 'PUT', { count: 2 })).status).toBe(200)
  // The first one shared with nobody: it is replaced by one that does.
  await expect.poll(ready).toEqual(['1 ready 1', '2 ready 0'])
  expect((await ask(`${workers}/restart`, 'POST')).status).toBe(200)
  await expect.poll(ready).toEqual(['1 ready 2', '2 ready 1'])
  expect((await ask(workers, 'PUT', { count: 1 })).status).toBe(200)
  await expect.poll(ready).toEqual(['1 ready 2'])
  expect(await ask(workers, 'PUT', { count: 0 })).toMatchObject({ status: 400, body: { error: { code: 'usage' } } })
  expect(await ask(workers, 'PUT', { count: 1_000 })).toMatchObject({
    status: 400,
    body: { error: { code: 'config_invalid' } },
  })
})

test('a server without workers reports that it has none', async () => {
  await using runs = await temporaryRuns()
  await using service = await RolloutService.open({
    environment,
    model: 'sim',
    preflight: false,
    run: { root: runs.root },
  })
  await using httpServer = await RolloutServer.open({ service, port: 0 })
  const workers = `${httpServer.url}/v1/workers`
  expect(await ask(workers, 'GET')).toEqual({ status: 200, body: { workers: [] } })
  expect(await ask(`${workers}/restart`, 'POST')).toMatchObject({
    status: 400,
    body: { error: { message: expect.stringContaining('--workers') as string } },
  })
})
