import { readdir } from 'node:fs/promises'
import { defineEnvironment, evaluate, z } from 'millrace'
import { temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'

/** Where a run is on its way to its first rollout, by what it asks of its environment; `before` and `at once` are earlier. */
const moments = ['before', 'at once', 'a turn later', 'tasks'] as const

test.each(moments)('an abort before the start cancels the run, at any time: %s', async (moment) => {
  await using runs = await temporaryRuns()
  const mine = new Error('mine')
  const stop = new AbortController()
  const environment = defineEnvironment({
    name: 'started',
    task: z.object({}),
    tasks: () => {
      if (moment === 'tasks') stop.abort(mine)
      return [{}]
    },
    prompt: () => 'go',
    reward: () => 1,
  })
  if (moment === 'before') stop.abort(mine)
  const run = evaluate({ environment, model: 'sim', signal: stop.signal, run: { root: runs.root } })
  if (moment === 'at once') stop.abort(mine)
  if (moment === 'a turn later') setImmediate(() => stop.abort(mine))
  const cancelled = { code: 'cancelled', cause: mine }
  await expect(run.started).rejects.toMatchObject(cancelled)
  await expect(Array.fromAsync(run)).rejects.toMatchObject(cancelled)
  await expect(run.summary()).rejects.toMatchObject(cancelled)
  expect(await readdir(runs.root)).toEqual([])
})
