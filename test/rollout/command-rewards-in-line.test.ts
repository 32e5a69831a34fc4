import { commandReward, defineEnvironment, evaluate, rescoreRun, RunReader, z } from 'millrace'
import { ScriptedBackend, temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'

/** Ten programs of a quarter of a second, one after the other, take longer together than the time for any one reward. */
const environment = defineEnvironment({
  name: 'in-line',
  task: z.object({ number: z.number() }),
  tasks: () => Array.from({ length: 10 }, (_, number) => ({ number })),
  prompt: () => 'Hello?',
  limits: { tailMs: 2_000 },
  reward: commandReward({ command: ['/bin/sh', '-c', 'sleep 0.25; echo 1'], maxConcurrency: 1 }),
})

test('waiting for a command slot does not use the time limit of a reward, also when rescoring', async () => {
  await using runs = await temporaryRuns()
  const run = evaluate({
    environment,
    model: { name: 'policy' },
    backends: { policy: [new ScriptedBackend(() => 'Hello.')] },
    run: { root: runs.root, name: 'in-line' },
  })
  const timings = []
  for await (const { timing } of run) timings.push(timing)
  const summary = await run.summary()
  expect(summary.reasons).toEqual({})
  expect(summary.scored).toBe(10)
  // The time in line is shown as such, and not as time of the reward.
  const longest = timings.toSorted((a, b) => b.wallMs - a.wallMs)[0]
  expect(longest?.waitMs).toBeGreaterThan(longest?.rewardMs ?? Infinity)

  using reader = RunReader.open(summary.folder)
  const rescoring = await rescoreRun(reader, { environment, concurrency: 10 })
  for await (const { error } of rescoring) expect(error).toBeUndefined()
  expect(rescoring.summary().after.scored).toBe(10)
}, 60_000)
