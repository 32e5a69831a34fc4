import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import {
  defineEnvironment,
  evaluate,
  exportRows,
  forkRollout,
  judge,
  MillraceError,
  replayRun,
  z,
  type Environment,
  type ForkOptions,
  type Message,
} from 'millrace'
import { calls, ScriptedBackend, temporaryRuns, type Script } from 'millrace/testing'
import { describe, expect, test, vi } from 'vitest'
import { readBinaryRows } from '../support/gateway/read-rows.ts'
import { openRun, scripted, storeRun } from '../support/replay/stored-runs.ts'

const said = (messages: readonly Message[], role: Message['role']): number =>
  messages.filter((message) => message.role === role).length

const live = { searched: 0, paid: 0 }
const environment = defineEnvironment({
  name: 'steps',
  task: z.object({ number: z.number() }),
  tasks: () => [{ number: 0 }, { number: 1 }],
  setup: ({ rollout }) => ({ seed: rollout.seed, steps: 0 }),
  prompt: ({ task }) => [
    { role: 'system', content: 'Be slow.' },
    { role: 'user', content: `Task ${task.number}` },
  ],
  tools: {
    step: {
      parameters: z.object({}),
      resume: 'rerun',
      run: (_, { state }) => `step ${(state.steps += 1)} of ${state.seed}`,
    },
    search: { parameters: z.object({}), resume: 'reuse', run: () => `found ${(live.searched += 1)}` },
    pay: { parameters: z.object({}), run: () => `paid ${(live.paid += 1)}` },
    ask: {
      parameters: z.object({ what: z.string() }),
      resume: 'rerun',
      run: async ({ what }, { child }) => (await child({ prompt: what, tools: [] })).answer,
    },
  },
  reward: ({ state, answer }) => state.steps + (answer === 'done by the other' ? 100 : 0),
})

/** Four turns with tools, then an answer. */
const first: Script = ({ messages }) => {
  if (String(messages[0]?.content).startsWith('Help')) return 'helped by the first'
  const turns = [
    calls({ step: {}, search: {} }),
    calls({ ask: { what: 'Help 1' } }),
    calls({ step: {} }),
    calls({ pay: {} }),
  ]
  return turns[said(messages, 'assistant')] ?? 'done by the first'
}

interface Forked {
  readonly root: string
  readonly options: Omit<ForkOptions, 'rollout'>
  readonly script?: Script
  readonly rollout?: string
}

const another: Script = ({ messages }) =>
  String(messages[0]?.content).startsWith('Help') ? 'helped by the other' : 'done by the other'

async function fork({ root, options, script = another, rollout = '1-0' }: Forked) {
  const backend = new ScriptedBackend(script)
  using reader = openRun(root)
  const evaluation = await forkRollout(reader, {
    rollout,
    environment,
    preflight: false,
    model: { ...scripted, name: 'other' },
    backends: { other: [backend], scripted: [backend] },
    ...options,
    run: { root, name: 'forked', ...options.run },
  })
  const records = await Array.fromAsync(evaluation)
  return { records, backend, summary: await evaluation.summary() }
}

describe('a fork', () => {
  test('repeats the turns before it and continues with the other model', async () => {
    await using runs = await temporaryRuns()
    const { backend: original } = await storeRun(runs.root, { environment, script: first })
    const before = { ...live, asked: original.requests.length }
    const { records, backend } = await fork({ root: runs.root, options: { turn: 3 } })
    expect({ ...live, asked: original.requests.length }).toEqual(before)
    expect(backend.requests).toHaveLength(1)
    expect(records).toMatchObject([
      { id: '1-0', model: 'other', outcome: 'completed', turns: 4, children: 1, reward: 102 },
    ])
    using source = openRun(runs.root)
    using forked = openRun(runs.root, 'forked')
    const [was, is] = [source.nodes('1-0', 1), forked.nodes('1-0', 1)]
    // System and user, then two calls and their answers, one, and one: the same up to the fourth turn, hashes and all.
    expect(is.slice(0, 9).map(({ hash, call }) => [hash, call?.model])).toEqual(
      was.slice(0, 9).map(({ hash, call }) => [hash, call?.model]),
    )
    expect(is.slice(9).map(({ message, call }) => [message.content, call?.model])).toEqual([
      ['done by the other', 'other'],
    ])
    expect(backend.requests[0]?.messages).toEqual(is.slice(0, 9).map(({ message }) => message))
    const file = JSON.parse(await readFile(join(runs.root, 'forked', 'run.json'), 'utf8')) as { config: object }
    expect(file.config).toMatchObject({ forkedFrom: { run: 'stored', rollout: '1-0', attempt: 1, turn: 3 } })
    expect((await Array.fromAsync(replayRun(forked, { environment }))).map(({ verdict }) => verdict)).toEqual([
      'identical',
    ])
  })

  test('does not train the tokens that it repeats', async () => {
    await using runs = await temporaryRuns()
    const talk = defineEnvironment({
      name: 'talk',
      task: z.object({}),
      tasks: () => [{}],
      prompt: () => 'Begin.',
      update: ({ messages }) =>
        messages.length < 6 ? { messages: [{ role: 'user', content: 'Go on.' }] } : { end: true },
      reward: () => 1,
    })
    // A token for each message.
    const script: Script = ({ messages: { length } }) => ({
      message: { role: 'assistant', content: 'yes' },
      finishReason: 'stop',
      usage: { calls: 1, input: length, cachedInput: 0, output: 1, reasoning: 0 },
      tokens: {
        promptIds: Int32Array.from({ length }, (_, index) => index),
        ids: Int32Array.of(length),
        logprobs: Float32Array.of(-1),
      },
    })
    await storeRun(runs.root, { environment: talk, script, captureTokens: true })
    await fork({ root: runs.root, rollout: '0-0', script, options: { environment: talk, turn: 2, samples: 2 } })
    using stored = openRun(runs.root)
    using forked = openRun(runs.root, 'forked')
    const masks = await Promise.all(
      [stored, forked].map(async (reader) => {
        const rows = await Array.fromAsync(exportRows(reader, { rows: 'merged', format: 'binary' }))
        return readBinaryRows(Buffer.concat(rows)).flatMap(({ mask }) => (mask ? [Array.from(mask as Uint8Array)] : []))
      }),
    )
    expect(masks).toEqual([
      [[0, 1, 0, 1, 0, 1]],
      [
        [0, 0, 0, 0, 0, 1],
        [0, 0, 0, 0, 0, 1],
      ],
    ])
    const replies = await Array.fromAsync(exportRows(forked, { rows: 'interactions', format: 'binary' }))
    const trains = readBinaryRows(Buffer.concat(replies)).map((row) => row['trains'])
    expect(trains).toEqual([false, false, true, false, false, true, undefined])
  })

  test('counts only its own time', async () => {
    await using runs = await temporaryRuns()
    const clock = performance.now.bind(performance)
    let aheadMs = 0
    using _ahead = vi.spyOn(performance, 'now').mockImplementation(() => clock() + aheadMs)
    const slow: Script = (request) => {
      aheadMs += 1_000
      return first(request)
    }
    await storeRun(runs.root, { environment, script: slow })
    const { records, summary } = await fork({ root: runs.root, options: { turn: 3 } })
    using forked = openRun(runs.root, 'forked')
    const last = forked.nodes('1-0', 1).at(-1)?.call
    const modelMs = Math.round(last?.ms ?? NaN)
    expect(records).toMatchObject([{ turns: 4, timing: { modelMs } }])
    expect(summary.usage.calls).toBeGreaterThan(1)
  })

  test('repeats turns by position if the prompt differs', async () => {
    await using runs = await temporaryRuns()
    await storeRun(runs.root, { environment, script: first })
    const { records, backend } = await fork({
      root: runs.root,
      options: { turn: 1, system: 'Be quick.', prompt: 'Another task' },
    })
    expect(records[0]?.messages.map(({ role, content }) => [role, content]).slice(0, 2)).toEqual([
      ['system', 'Be quick.'],
      ['user', 'Another task'],
    ])
    expect(backend.requests[0]?.messages).toHaveLength(5)
    expect(records[0]).toMatchObject({ turns: 2, reward: 101 })
    using forked = openRun(runs.root, 'forked')
    expect((await Array.fromAsync(replayRun(forked, { environment }))).map(({ verdict }) => verdict)).toEqual([
      'identical',
    ])
  })

  test('starts from the beginning at turn 0, and runs children that had not begun', async () => {
    await using runs = await temporaryRuns()
    await storeRun(runs.root, { environment, script: first })
    const anew = await fork({ root: runs.root, options: { turn: 0 } })
    expect(anew.records[0]).toMatchObject({ turns: 1, reward: 100, toolCalls: 0 })
    const again: Script = (request) =>
      said(request.messages, 'assistant') === 1 ? calls({ ask: { what: 'Help 1' } }) : another(request)
    const later = await fork({ root: runs.root, options: { turn: 1, run: { name: 'later' } }, script: again })
    expect(later.records[0]?.messages.at(-2)?.content).toBe('helped by the other')
  })

  test('runs several samples with different seeds from one state', async () => {
    await using runs = await temporaryRuns()
    await storeRun(runs.root, { environment, script: first, seed: 7 })
    const { records, backend, summary } = await fork({ root: runs.root, options: { turn: 1, samples: 4 } })
    expect(records.map(({ id }) => id).toSorted()).toEqual(['1-0', '1-1', '1-2', '1-3'])
    expect(summary).toMatchObject({ tasks: 1, rollouts: 4, scored: 4 })
    expect(new Set(backend.requests.map(({ sampling }) => sampling.seed)).size).toBe(4)
    // The environment drew from the seed that the stored rollout had.
    expect(new Set(records.map(({ messages }) => JSON.stringify(messages.slice(0, 5)))).size).toBe(1)
  })

  test('that was stopped resumes from its own journal', async () => {
    await using runs = await temporaryRuns()
    await storeRun(runs.root, { environment, script: first })
    const stop = new AbortController()
    const stopped = await fork({
      root: runs.root,
      options: { turn: 2, signal: stop.signal },
      script: ({ messages, signal }) => {
        if (said(messages, 'assistant') === 2) return calls({ step: {} })
        stop.abort()
        return new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)))
      },
    })
    expect(stopped.summary).toMatchObject({ end: 'stopped', rollouts: 0 })
    const resumed = await fork({ root: runs.root, options: { turn: 2 } })
    expect(resumed.backend.requests).toHaveLength(1)
    expect(resumed.records).toMatchObject([{ attempt: 1, turns: 4, reward: 102 }])
    await expect(fork({ root: runs.root, options: { turn: 1 } })).rejects.toThrow('started with other settings')
  })

  test('is refused after a call that cannot be repeated, unless its answers are reused', async () => {
    await using runs = await temporaryRuns()
    await storeRun(runs.root, { environment, script: first })
    await expect(fork({ root: runs.root, options: { turn: 4 } })).rejects.toThrow(
      'tool pay was called in the first 4 turns',
    )
    const paid = live.paid
    const { records } = await fork({ root: runs.root, options: { turn: 4, reusesTools: true } })
    expect(live.paid).toBe(paid)
    expect(records[0]).toMatchObject({ turns: 5, reward: 102 })
  })

  test('ends at once if a repeated tool gives another answer', async () => {
    await using runs = await temporaryRuns()
    await storeRun(runs.root, { environment, script: first })
    const step = { parameters: z.object({}), resume: 'rerun' as const, run: () => 'another answer' }
    const changed = { ...environment, tools: { ...environment.tools, step } }
    using reader = openRun(runs.root)
    const evaluation = await forkRollout(reader, {
      rollout: '1-0',
      turn: 2,
      environment: changed,
      preflight: false,
      model: { ...scripted, name: 'other' },
      backends: { other: [new ScriptedBackend(another)] },
      run: { root: runs.root, name: 'forked' },
    })
    const records = await Array.fromAsync(evaluation)
    expect(records).toMatchObject([{ outcome: 'agent_error', error: { code: 'replay_diverged' } }])
    expect(records[0]?.error?.message).toContain('step ran again for turn 1')
  })

  test('refuses an existing run that is not a fork of the same rollout', async () => {
    await using runs = await temporaryRuns()
    await storeRun(runs.root, { environment, script: first })
    const into = (name: string, rollout = '1-0') =>
      fork({ root: runs.root, rollout, options: { turn: 0, run: { name } } })
    await expect(into('stored')).rejects.toThrow(
      'run stored is not a fork of rollout 1-0 of run stored: choose another name with --run',
    )
    await into('forked')
    await expect(into('forked', '0-0')).rejects.toThrow('run forked is not a fork of rollout 0-0 of run stored')
    // Nor does a run that begins at the beginning go on with a fork.
    await expect(storeRun(runs.root, { environment, script: first, name: 'forked' })).rejects.toThrow(
      /started with other settings:.* forkedFrom .*, now not set/,
    )
  })

  test('of a changed task is refused and leaves no run', async () => {
    await using runs = await temporaryRuns()
    await storeRun(runs.root, { environment, script: first })
    using reader = openRun(runs.root)
    const changed = async (tasks: readonly { readonly number: number }[]) => {
      const evaluation = await forkRollout(reader, {
        rollout: '1-0',
        turn: 0,
        environment: { ...environment, tasks: () => tasks },
        preflight: false,
        backends: { scripted: [new ScriptedBackend(another)] },
        run: { root: runs.root, name: 'forked' },
      })
      return await evaluation.summary()
    }
    await expect(changed([{ number: 0 }, { number: 7 }])).rejects.toThrow(
      /has changed since the run was made; restore it, or leave out the --env \(options\) or --environment/,
    )
    expect(await readdir(runs.root)).toEqual(['stored'])
  })

  test('reports the available turns for an invalid turn', async () => {
    await using runs = await temporaryRuns()
    await storeRun(runs.root, {
      environment,
      script: (request) => {
        if (request.sessionId.startsWith('0-0')) throw new MillraceError('model_rejected', 'no')
        return first(request)
      },
    })
    const at = (turn: number, rollout = '1-0') => fork({ root: runs.root, rollout, options: { turn } })
    await expect(at(5)).rejects.toThrow(
      'has 5 turns and cannot be forked after turn 5: --turn (turn) takes 0, which repeats no turn, to 4',
    )
    await expect(at(1.5)).rejects.toThrow('--turn (turn) takes 0')
    await expect(at(0, '0-0')).rejects.toThrow('has no turn to continue from: it ended as model_error')
    await expect(at(0, '1-1')).rejects.toThrow('did you mean 1-0')
  })
})

test('a fork with another model does not need the key of the first model', async () => {
  await using runs = await temporaryRuns()
  const { root } = runs
  const model = { ...scripted, backends: [{ url: 'http://scripted.invalid', apiKeyEnv: 'FIRST_KEY' }] }
  const backends = { scripted: [new ScriptedBackend(first)] }
  await evaluate({ environment, model, backends, preflight: false, run: { root, name: 'stored' } }).summary()
  const other = new ScriptedBackend(another)
  const options = { turn: 1, backends: { other: [other] } }
  const { records } = await fork({ root, options })
  expect(records).toMatchObject([{ answer: 'done by the other' }])
  await expect(fork({ root, options: { ...options, model: 'scripted' } })).rejects.toThrow('names FIRST_KEY')
})

describe('a fork with another model, where the first model judges', () => {
  const judged = defineEnvironment({
    name: 'judged',
    task: z.object({}),
    tasks: () => [{}],
    prompt: () => 'Say something.',
    reward: judge({ rubric: 'Is it something?' }),
  })
  const atOpenAi = { ...scripted, backends: [{ url: 'https://api.openai.com/v1', apiKeyEnv: 'NO_SUCH_KEY' }] }

  async function forkWithoutKey(root: string, made: Environment, scored = 1) {
    const backends = { scripted: [new ScriptedBackend(({ messages }) => (messages.length > 1 ? 'Score: 1' : 'one'))] }
    const stored = await evaluate({
      environment: made,
      model: atOpenAi,
      backends,
      preflight: false,
      run: { root, name: 'stored' },
    }).summary()
    expect(stored.scored).toBe(scored)
    const other = new ScriptedBackend(() => 'two')
    return await fork({
      root,
      rollout: '0-0',
      options: { turn: 0, environment: made, backends: { other: [other] } },
    })
  }

  test('needs no key if no judge call was recorded', async () => {
    await using runs = await temporaryRuns()
    const { records } = await forkWithoutKey(runs.root, { ...judged, reward: () => 1 })
    expect(records).toMatchObject([{ answer: 'two', reward: 1 }])
  })

  test('needs the key if the first model judged, or if that is unknown', async () => {
    await using runs = await temporaryRuns()
    await expect(forkWithoutKey(runs.root, judged)).rejects.toThrow('NO_SUCH_KEY is not set')
    await using others = await temporaryRuns()
    const broken = { ...judged, reward: () => Number.NaN }
    await expect(forkWithoutKey(others.root, broken, 0)).rejects.toThrow('NO_SUCH_KEY is not set')
  })
})
