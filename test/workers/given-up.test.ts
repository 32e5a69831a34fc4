import { join } from 'node:path'
import { defineEnvironment, evaluate, MillraceError, RunReader, z } from 'millrace'
import { ScriptedBackend, temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import { RunStore } from '../../src/store/index.ts'
import { newRun, nodeEntry, rolloutEntries, temporaryFolder } from '../support/store/fixtures.ts'

test('writes of a rollout after its cancellation do not change its outcome', async () => {
  using folder = temporaryFolder()
  const record = { messages: [], error: new MillraceError('cancelled', 'enough').toWire() }
  const entries = rolloutEntries(1, { outcome: 'cancelled', messages: ['question'], record })
  await using store = await RunStore.open({ folder: folder.path, create: newRun() })
  for (const entry of entries) {
    // The scheduler ends a rollout of which it has heard nothing without a leaf.
    store.journal.append(
      'leaf' in entry ? { ...entry, leaf: null, ...('messages' in entry && { messages: [] }) } : entry,
    )
  }
  await store.journal.durable()
  store.journal.append(nodeEntry({ rollout: '1-0', seq: 1 }))
  store.journal.append(nodeEntry({ rollout: '1-0', seq: 2 }))
  await store.journal.durable()
  using reader = RunReader.open(folder.path)
  expect(reader.rollout('1-0')).toMatchObject({ outcome: 'cancelled', messages: [] })
  expect(reader.counts()).toMatchObject({ ended: 1, nodes: 3 })
  expect([...reader.unfinished()]).toEqual([])
  expect(reader.integrity()).toEqual([])
})

test('a teardown that is running when its rollout is cancelled gets a short time limit', async () => {
  await using runs = await temporaryRuns()
  const begun = Promise.withResolvers<void>()
  const environment = defineEnvironment({
    name: 'stuck',
    task: z.object({}),
    tasks: () => [{}],
    prompt: () => 'go',
    reward: () => 1,
    teardown: () => {
      begun.resolve()
      return new Promise<never>(() => {})
    },
  })
  const run = evaluate({
    environment,
    model: { name: 'scripted', backends: [{ url: 'http://scripted.invalid' }] },
    backends: { scripted: [new ScriptedBackend(() => 'fine')] },
    preflight: false,
    limits: { tailMs: 600_000, wallTimeoutMs: 3_600_000 },
    run: { root: runs.root, name: 'stuck' },
  })
  void begun.promise.then(() => run.stop())
  expect(await Array.fromAsync(run)).toEqual([])
  using reader = RunReader.open(join(runs.root, 'stuck'))
  expect([...reader.unfinished()]).toHaveLength(1)
})

test.each([
  [{ workers: 126 }, /at most 125 workers, not 126/],
  [{ supervision: { replaceAfterMs: 5_000 } }, /supervision applies to workers/],
  [{ workers: 1, supervision: { replaceAfterMs: 100 } }, /replaced after 2000 ms at the earliest, not after 100/],
  [{ workers: 1, supervision: { maxMemoryBytes: 0 } }, /supervision\.maxMemoryBytes must be a number above 0/],
])('the options %j are refused before anything is opened', async (options, why) => {
  await using runs = await temporaryRuns()
  const run = evaluate({ environment: 'arithmetic', model: 'sim', ...options, run: { root: runs.root } })
  await expect(Array.fromAsync(run)).rejects.toMatchObject({
    code: 'config_invalid',
    message: expect.stringMatching(why) as string,
  })
})
