import { join } from 'node:path'
import { defineEnvironment, evaluate, forkRollout, replayRun, RunReader, z, type RolloutRecord } from 'millrace'
import { calls, ScriptedBackend, temporaryRuns, type Script } from 'millrace/testing'
import { setTimeout as sleep } from 'node:timers/promises'
import { expect, test } from 'vitest'

let late: Promise<void> | undefined
const environment = defineEnvironment({
  name: 'searching',
  task: z.object({}),
  tasks: () => [{}],
  prompt: () => 'Find it.',
  tools: {
    search: {
      parameters: z.object({}),
      resume: 'reuse',
      run: (_, { metric, note }) => {
        const places = ['here']
        metric('found', 3)
        note('places', places)
        places.push('there')
        late = sleep(0).then(() => metric('late', 1))
        return 'found'
      },
    },
    wait: {
      parameters: z.object({}),
      resume: 'reuse',
      timeoutMs: 1,
      run: async (_, { metric, signal }) => {
        metric('waited', 1)
        await new Promise((resolve) => signal.addEventListener('abort', resolve))
        return ''
      },
    },
    count: {
      parameters: z.object({}),
      resume: 'rerun',
      run: (_, { metric }) => {
        metric('found', 4)
        return 'counted'
      },
    },
  },
  reward: () => 1,
})

const turns = [calls({ search: {}, wait: {} }), calls({ count: {} })]

/** Searches, counts and ends; never answers the last turn if it is to be cut off there, and stops the run. */
async function sit(root: string, isCutOff: boolean): Promise<RolloutRecord[]> {
  const stop = new AbortController()
  const script: Script = async ({ messages, signal }) => {
    const turn = messages.filter(({ role }) => role === 'assistant').length
    if (turn === 1) await late
    if (turn < 2 || !isCutOff) return turns[turn] ?? 'done'
    stop.abort()
    return await new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)))
  }
  const evaluation = evaluate({
    environment,
    model: { name: 'scripted', backends: [{ url: 'http://scripted.invalid' }] },
    backends: { scripted: [new ScriptedBackend(script)] },
    preflight: false,
    signal: stop.signal,
    run: { root, name: 'said' },
  })
  const records = await Array.fromAsync(evaluation)
  await evaluation.summary()
  return records
}

const said = { metrics: { found: 4, waited: 1 }, info: { places: ['here'] } }

test('a rollout that was cut off keeps what calls said of it that are not made again', async () => {
  await using runs = await temporaryRuns()
  expect(await sit(runs.root, true)).toEqual([])
  expect(await sit(runs.root, false)).toMatchObject([{ attempt: 1, ...said }])
  using reader = RunReader.open(join(runs.root, 'said'))
  const tools = reader.nodes('0-0', 1).flatMap(({ tool }) => tool ?? [])
  expect(tools.map(({ name, said: kept }) => [name, kept?.metrics])).toEqual([
    // What it said after its answer belongs to no answer.
    ['search', { found: 3 }],
    ['wait', { waited: 1 }],
    // Whoever goes on from here calls it again.
    ['count', undefined],
  ])
})

test('so do a replay and a fork', async () => {
  await using runs = await temporaryRuns()
  await sit(runs.root, true)
  await sit(runs.root, false)
  using reader = RunReader.open(join(runs.root, 'said'))
  expect(await Array.fromAsync(replayRun(reader, { environment }))).toMatchObject([{ verdict: 'identical' }])
  const fork = await forkRollout(reader, {
    rollout: '0-0',
    turn: 1,
    environment,
    backends: { scripted: [new ScriptedBackend(() => 'done')] },
    preflight: false,
    run: { root: runs.root, name: 'forked' },
  })
  expect(await Array.fromAsync(fork)).toMatchObject([{ metrics: { found: 3, waited: 1 }, info: said.info }])
})
