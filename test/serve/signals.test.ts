import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { SimulatorServer } from 'millrace'
import { temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import { fixture, millrace } from '../support/cli/millrace-process.ts'
import { post, startServe } from '../support/serve/serve-process.ts'

const task = { left: 1, right: 2 }

/** How the run says that its last launch ended. */
async function endOf(root: string): Promise<unknown> {
  const shown = await millrace({ cwd: root }, 'show', 'served', '--json')
  return (JSON.parse(shown.stdout.split('\n')[0] ?? '') as { end?: unknown }).end
}

test('SIGTERM drains: running rollouts end and are answered, then the process ends', async () => {
  await using runs = await temporaryRuns()
  await using simulator = await SimulatorServer.start({ ttftMs: 700, spread: 0 })
  const model = ['-m', 'slow', '--base-url', simulator.url]
  const words = [fixture('counting.ts'), ...model, '--no-preflight', '--run', 'served']
  await using server = await startServe(runs.root, ...words)
  const reply = post(server.url, { task })
  await expect.poll(() => simulator.stats.inFlight).toBe(1)
  server.running.process.kill('SIGTERM')
  await server.running.shows('stderr', 'draining')
  expect((await fetch(`${server.url}/ready`)).status).toBe(503)
  expect((await post(server.url, { task })).status).toBe(503)
  expect(await (await reply).json()).toMatchObject({ outcome: 'completed' })
  expect(await server.running.ended).toMatchObject({ code: 0 })
  expect(await endOf(runs.root)).toBe('drained')
})

test('a second signal stops running rollouts with an error to the client; the next launch finishes them', async () => {
  await using runs = await temporaryRuns()
  await using hung = await SimulatorServer.start({ 'faults.hang': 1 })
  const { port } = hung
  const words = [fixture('counting.ts'), '-m', 'some', '--base-url', hung.url, '--no-preflight', '--run', 'served']
  {
    await using server = await startServe(runs.root, ...words)
    const reply = post(server.url, { task, requestId: 'cut-off' })
    await expect.poll(() => hung.stats.inFlight).toBe(1)
    server.running.process.kill('SIGINT')
    await server.running.shows('stderr', 'draining')
    server.running.process.kill('SIGINT')
    expect(await (await reply).json()).toMatchObject({ error: { code: 'closed' } })
    expect(await server.running.ended).toMatchObject({ code: 130 })
    expect(await endOf(runs.root)).toBe('stopped')
  }
  await hung.close()
  await using _well = await SimulatorServer.start({ port })
  await using server = await startServe(runs.root, ...words)
  expect(await (await post(server.url, { task, requestId: 'cut-off' })).json()).toMatchObject({
    id: '0-0',
    outcome: 'completed',
  })
})

test('a configuration that cannot be served is refused with one sentence', async () => {
  await using runs = await temporaryRuns()
  await using server = await startServe(runs.root, fixture('counting.ts'), '-m', 'sim')
  const { startMillrace } = await import('../support/cli/millrace-process.ts')
  const { port } = new URL(server.url)
  const place = { cwd: runs.root }
  await using taken = startMillrace(place, 'serve', fixture('counting.ts'), '-m', 'sim', '--port', port, '--run', 'two')
  expect(await taken.ended).toMatchObject({ code: 2, stderr: expect.stringContaining('--port') as string })
  expect(existsSync(join(runs.root, 'runs', 'two'))).toBe(false)
  await using open = startMillrace(place, 'serve', fixture('counting.ts'), '-m', 'sim', '--host', '0.0.0.0')
  expect(await open.ended).toMatchObject({ code: 2, stderr: expect.stringContaining('MILLRACE_API_KEY') as string })
  const keyed = ['-m', 'sim', '--access-key-env', 'NOWHERE', '--port', '0']
  await using unlocked = startMillrace(place, 'serve', fixture('counting.ts'), ...keyed)
  expect(await unlocked.ended).toMatchObject({ code: 2, stderr: expect.stringContaining('NOWHERE') as string })
})
