import {
  defineEnvironment,
  forkRollout,
  replayRollout,
  replayRun,
  rescoreRun,
  z,
  type ForkOptions,
  type ReplayOptions,
  type RunReader,
} from 'millrace'
import { temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import { openRun, storeRun } from '../support/replay/stored-runs.ts'

const environment = defineEnvironment({
  name: 'plain',
  task: z.object({}),
  tasks: () => [{}],
  prompt: () => 'hello',
  reward: () => 1,
})

// As from JavaScript: the types refuse these.
const fork = (given: object | undefined) => (reader: RunReader) => forkRollout(reader, given as ForkOptions)
const replay = (given: unknown) => (reader: RunReader) => Array.fromAsync(replayRun(reader, given as ReplayOptions))
const replayOne = (rollout: unknown, given: object) => (reader: RunReader) =>
  replayRollout(reader, rollout as string, given)
const rescore = (given: object) => (reader: RunReader) => rescoreRun(reader, given)

test.each<[problem: string, how: (reader: RunReader) => Promise<unknown>]>([
  ['options of forkRollout(): missing; expected object', fork(undefined)],
  ["rollout must be a rollout's id, such as 0-0, not undefined", fork({})],
  ['`sample` is not known; did you mean `samples`?', fork({ rollout: '0-0', turn: 0, sample: 3 })],
  ['samples: expected number to be at least 1', fork({ rollout: '0-0', turn: 0, samples: 0 })],
  ['system: expected string, got number', fork({ rollout: '0-0', turn: 0, system: 5 })],
  ['run: `folder` is not known', fork({ rollout: '0-0', turn: 0, run: { folder: 'x' } })],
  ['options of replayRun(): `enviroment` is not known; did you mean `environment`?', replay({ enviroment: 'x' })],
  ['options of replayRun(): expected object, got null', replay(null)],
  ['options of replayRollout(): options: expected object, got number', replayOne('0-0', { options: 5 })],
  ["rollout must be a rollout's id, such as 0-0, not undefined", replayOne(undefined, {})],
  ['options of rescoreRun(): `juge` is not known; did you mean `judge`?', rescore({ juge: 'live' })],
  ['judge: expected one of', rescore({ judge: 'alive' })],
  ['concurrency: expected number to be at least 1', rescore({ concurrency: 0 })],
])('what does not fit is refused by name: %s', async (problem, how) => {
  await using runs = await temporaryRuns()
  await storeRun(runs.root, { environment, script: () => 'hello' })
  using reader = openRun(runs.root)
  await expect(how(reader)).rejects.toMatchObject({
    code: 'config_invalid',
    rawMessage: expect.stringContaining(problem),
  })
})
