import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import { RunReader } from '../../src/store/index.ts'
import { fixture } from '../support/cli/millrace-process.ts'
import { post, startServe } from '../support/serve/serve-process.ts'

const count = 300

test('a server that is killed and restarted finishes every accepted rollout once', async () => {
  await using runs = await temporaryRuns()
  const words = [
    fixture('counting.ts'),
    ...`-m sim --sim.ttftMs=300 -c 20 --seed 3 --log-level warn --runs ${runs.root} --run served`.split(' '),
  ]
  const tasks = Array.from({ length: count }, (_, index) => ({ left: index, right: 2 * index }))
  const request = { requestId: 'survives', tasks, detached: true }
  const ended = new Set<string>()
  for (const enough of [count / 4, count / 2]) {
    await using server = await startServe(runs.root, ...words)
    // The second time, the same words mean the same rollouts.
    expect((await post(server.url, request)).status).toBe(202)
    await expect.poll(() => endedIn(server.url, ended)).toBeGreaterThan(enough)
    server.running.process.kill('SIGKILL')
    await once(server.running.process, 'exit')
  }
  expect(ended.size).toBeLessThan(count)

  await using server = await startServe(runs.root, ...words)
  const reply = await fetch(`${server.url}/v1/requests/survives`, { headers: { accept: 'application/x-ndjson' } })
  const lines = (await reply.text()).trimEnd().split('\n')
  const records = lines.map((line) => JSON.parse(line) as { id: string; outcome: string; reward: number })
  const expected = tasks.map((_, index) => `${index}-0`)
  expect(records.map(({ id }) => id).toSorted()).toEqual(expected.toSorted())
  expect(records.every(({ outcome, reward }) => outcome === 'completed' && reward === 1)).toBe(true)
  server.running.process.kill('SIGTERM')
  expect((await server.running.ended).code).toBe(0)

  using reader = RunReader.open(join(runs.root, 'served'))
  expect(reader.integrity()).toEqual([])
  expect([...reader.events('duplicate-result')]).toEqual([])
  expect(Array.from(reader.tasks(), ({ row }) => row)).toEqual(tasks)
  for (const id of ended) expect(reader.hasEnded(id), `${id} was reported and is gone`).toBe(true)
  const file = await readFile(join(runs.root, 'served', 'rollouts.jsonl'), 'utf8')
  expect(file.trimEnd().split('\n')).toHaveLength(count)
})

async function endedIn(url: string, ended: Set<string>): Promise<number> {
  const { rollouts } = (await (await fetch(`${url}/v1/requests/survives`)).json()) as {
    rollouts: { id: string; state: string }[]
  }
  for (const { id, state } of rollouts) if (state === 'ended') ended.add(id)
  return ended.size
}
