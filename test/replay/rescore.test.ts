import { createHash } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { once } from 'node:events'
import { join } from 'node:path'
import {
  defineEnvironment,
  evaluate,
  judge,
  MillraceError,
  rescoreRun,
  z,
  type Budget,
  type Environment,
  type RescoredRollout,
  type RescoreOptions,
  type RescoreSummary,
  type RunReader,
} from 'millrace'
import { calls, temporaryRuns } from 'millrace/testing'
import { describe, expect, test } from 'vitest'
import offloadedEnvironment from '../fixtures/offloaded.ts'
import { defaultLimits } from '../../src/schema/index.ts'
import { openRun, storeRun } from '../support/replay/stored-runs.ts'

const base = {
  name: 'numbers',
  task: z.object({ number: z.number() }),
  tasks: () => Array.from({ length: 6 }, (_, number) => ({ number })),
  setup: ({ task }: { task: { number: number } }) => ({ square: task.number ** 2 }),
  prompt: ({ task }: { task: { number: number } }) => `Number ${task.number}`,
}
const original = defineEnvironment({ ...base, reward: { even: ({ task }) => task.number % 2 === 0 } })

async function rescored(
  reader: RunReader,
  environment: Environment,
  options: Omit<RescoreOptions, 'environment'> = {},
): Promise<{ lines: RescoredRollout[]; summary: RescoreSummary }> {
  const rescoring = await rescoreRun(reader, { environment, ...options })
  const lines = await Array.fromAsync(rescoring)
  return { lines, summary: rescoring.summary() }
}

async function digestOf(folder: string): Promise<string[]> {
  const files = await Promise.all(
    ['run.json', 'rollouts.jsonl', 'journal.sqlite'].map((name) => readFile(join(folder, name))),
  )
  return files.map((content) => createHash('sha256').update(content).digest('hex'))
}

describe('rescoring', () => {
  test('gives every rollout its new rewards, in order, and does not change the run', async () => {
    await using runs = await temporaryRuns()
    const { folder } = await storeRun(runs.root, { environment: original, attempts: 2, script: () => 'right' })
    const before = await digestOf(folder)
    using reader = openRun(runs.root)
    const changed = defineEnvironment({
      ...base,
      reward: {
        half: { weight: 0.5, score: ({ task }) => task.number >= 3 },
        async later({ answer, messages, outcome, truncated, rollout, options, state, metric }) {
          await new Promise((resolve) => setImmediate(resolve))
          metric('square', state.square)
          const sees = [answer, messages.length, outcome, truncated, rollout.attempt, Object.keys(options ?? {}).length]
          return sees.join() === 'right,2,completed,false,1,0'
        },
      },
    })
    const { lines, summary } = await rescored(reader, changed)
    expect(lines.map(({ id, before: old, after }) => `${id} ${old} ${after}`)).toEqual([
      '0-0 1 1',
      '0-1 1 1',
      '1-0 0 1',
      '1-1 0 1',
      '2-0 1 1',
      '2-1 1 1',
      '3-0 0 1.5',
      '3-1 0 1.5',
      '4-0 1 1.5',
      '4-1 1 1.5',
      '5-0 0 1.5',
      '5-1 0 1.5',
    ])
    expect(lines[7]).toMatchObject({ rewards: { half: { score: 1, weight: 0.5 } }, metrics: { square: 9 } })
    expect(summary).toMatchObject({
      rollouts: 12,
      changed: 8,
      before: { scored: 12, score: { mean: 0.5 } },
      after: { scored: 12, score: { mean: 1.25 }, components: { later: { mean: 1 } } },
      change: { mean: 0.75 },
      failures: [],
      notices: [],
    })
    // Six tasks, half of them 1 and half 0: √(6/5 · 6 · 1 / 12²) with two rollouts each.
    expect(summary.before.score?.standardError).toBeCloseTo(Math.sqrt(((6 / 5) * 6) / 144), 10)
    expect(await digestOf(folder)).toEqual(before)
  })

  test('scores whole groups, and voids rewards according to the group policy', async () => {
    await using runs = await temporaryRuns()
    await storeRun(runs.root, {
      environment: original,
      attempts: 3,
      script: ({ messages, sessionId }) => {
        if (sessionId === '2-1') throw new MillraceError('model_rejected', 'no')
        return `${String(messages[0]?.content)} ${sessionId.at(-1)}`
      },
    })
    using reader = openRun(runs.root)
    const rank = {
      own: () => 1,
      rank: {
        weight: 10,
        group: ({ members }: { members: readonly { sample: number }[] }) => members.map((each) => each.sample),
      },
    }
    const kept = await rescored(reader, defineEnvironment({ ...base, reward: rank }))
    expect(kept.lines.filter(({ task }) => task.index === 2).map(({ after }) => after)).toEqual([1, null, 21])
    const voided = await rescored(reader, defineEnvironment({ ...base, reward: rank, groupPolicy: 'void' }))
    expect(voided.lines.filter(({ task }) => task.index > 1 && task.index < 4).map(({ after }) => after)).toEqual([
      null,
      null,
      null,
      1,
      11,
      21,
    ])
  })

  test('reuses recorded judge replies, and calls a judge only with --judge live', async () => {
    await using runs = await temporaryRuns()
    const judged = (rubric: string) => defineEnvironment({ ...base, reward: judge({ rubric }) })
    const { backend } = await storeRun(runs.root, {
      environment: judged('Kind.'),
      script: ({ messages }) => (messages.length > 1 ? 'Score: 0.4' : 'right'),
    })
    const asked = backend.requests.length
    using reader = openRun(runs.root)
    const same = await rescored(reader, judged('Kind.'))
    expect(same.lines.map(({ after }) => after)).toEqual(Array.from({ length: 6 }, () => 0.4))
    // Asked twice what was asked once.
    const twice = { first: judge({ rubric: 'Kind.' }), second: judge({ rubric: 'Kind.' }) }
    const both = await rescored(reader, defineEnvironment({ ...base, reward: twice }))
    expect(both.lines.map(({ after }) => after)).toEqual(Array.from({ length: 6 }, () => 0.8))
    const other = await rescored(reader, judged('Strict.'))
    expect(other.summary).toMatchObject({
      after: { scored: 0 },
      failures: [{ count: 6, message: expect.stringContaining('--judge live') }],
    })
    expect(other.lines[0]).toMatchObject({ outcome: 'reward_error', after: null, error: { code: 'reward_failed' } })
    expect(backend.requests).toHaveLength(asked)
    // The scripted model is not there any more: that it is asked shows in how that fails.
    const live = await rescored(reader, judged('Strict.'), { judge: 'live' })
    expect(live.lines[0]?.error?.message).toContain('gave no verdict')
  })

  test('calls a live judge', async () => {
    await using runs = await temporaryRuns()
    await evaluate({ environment: 'judged-answers', model: 'sim', run: { root: runs.root, name: 'stored' } }).summary()
    using reader = openRun(runs.root)
    const rescoring = await rescoreRun(reader, {
      environment: defineEnvironment({
        name: 'judged-again',
        task: z.object({ question: z.string(), reference: z.string() }),
        tasks: judgedTasks,
        prompt: () => '',
        reward: judge({ question: ({ task }) => task.question, reference: ({ task }) => task.reference }),
      }),
      judge: 'live',
    })
    const lines = await Array.fromAsync(rescoring)
    expect(rescoring.summary().judgeUsage.calls).toBe(18)
    expect(lines.map(({ after }) => after)).toEqual(Array.from({ length: 18 }, () => 1))
  })

  test('reports changed tasks, and scores the others, with stored rows for missing tasks', async () => {
    await using runs = await temporaryRuns()
    await storeRun(runs.root, { environment: original, script: () => 'right' })
    using reader = openRun(runs.root)
    const fewer = defineEnvironment({
      ...base,
      tasks: () => [{ number: 0 }, { number: 9 }, { number: 2 }, { number: 3 }],
      reward: () => 1,
    })
    const { lines, summary } = await rescored(reader, fewer)
    expect(lines.map(({ id, after, error }) => [id, after, error?.message ?? ''])).toEqual([
      ['0-0', 1, ''],
      ['1-0', null, 'task 1 (1) has changed since the run was made'],
      ['2-0', 1, ''],
      ['3-0', 1, ''],
      ['4-0', 1, ''],
      ['5-0', 1, ''],
    ])
    expect(summary).toMatchObject({ rollouts: 6, withoutTask: 1, withStoredTask: 2, after: { scored: 5 } })
  })

  test('scores rollouts that only lack their score, and not infrastructure failures', async () => {
    await using runs = await temporaryRuns()
    await storeRun(runs.root, {
      environment: defineEnvironment({
        ...base,
        reward: () => {
          throw new Error('not yet')
        },
      }),
      script: ({ sessionId }) => {
        if (sessionId === '0-0') throw new MillraceError('model_rejected', 'no')
        return 'right'
      },
    })
    using reader = openRun(runs.root)
    const { lines } = await rescored(reader, original)
    expect(lines.map(({ outcome, after }) => [outcome, after])).toEqual([
      ['model_error', null],
      ['completed', 0],
      ['completed', 1],
      ['completed', 0],
      ['completed', 1],
      ['completed', 0],
    ])
  })

  test('notes that a reward reads a state that only tools would have changed', async () => {
    await using runs = await temporaryRuns()
    const environment = defineEnvironment({ ...base, update: () => {}, reward: ({ state }) => state.square })
    await storeRun(runs.root, { environment, script: () => 'right' })
    using reader = openRun(runs.root)
    expect((await rescored(reader, environment)).summary.notices).toEqual([expect.stringContaining('reads the state')])
    const without = await rescored(reader, environment, { setup: false })
    expect(without.summary).toMatchObject({ after: { scored: 0 }, failures: [{ count: 6 }] })
  })

  test('runs teardown for each setup, also if a reward fails or times out', async () => {
    await using runs = await temporaryRuns()
    await storeRun(runs.root, { environment: original, script: () => 'right', limits: { tailMs: 200 } })
    using reader = openRun(runs.root)
    const open = new Set<number>()
    const environment = defineEnvironment({
      ...base,
      setup: ({ task }) => {
        open.add(task.number)
        return { square: 0 }
      },
      teardown: ({ task }) => void open.delete(task.number),
      reward: ({ task, signal }) => {
        if (task.number === 1) throw new Error('no')
        if (task.number !== 2) return 1
        return new Promise<number>((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)))
      },
    })
    const { lines } = await rescored(reader, environment)
    expect(lines.map(({ after }) => after)).toEqual([1, null, null, 1, 1, 1])
    expect(lines[2]?.error?.message).toContain('took longer than the 200 ms reserved for it (limits.tailMs)')
    expect([...open]).toEqual([])
  })

  test('runs teardown for a setup that finishes after its timeout', async () => {
    await using runs = await temporaryRuns()
    await storeRun(runs.root, { environment: original, limit: 1, script: () => 'right', limits: { tailMs: 100 } })
    using reader = openRun(runs.root)
    const late = Promise.withResolvers<void>()
    const closed: unknown[] = []
    const environment = defineEnvironment({
      ...base,
      setup: async () => {
        await late.promise
        return { square: 0 }
      },
      teardown: ({ state }) => void closed.push(state),
      reward: () => 1,
    })
    const { lines } = await rescored(reader, environment)
    expect(lines[0]).toMatchObject({ outcome: 'reward_error', after: null })
    expect(closed).toEqual([undefined])
    late.resolve()
    await expect.poll(() => closed).toEqual([undefined, { square: 0 }])
  })

  test('reports a setup that throws, with its position', async () => {
    await using runs = await temporaryRuns()
    await storeRun(runs.root, { environment: original, script: () => 'right' })
    using reader = openRun(runs.root)
    const environment = defineEnvironment({
      ...base,
      setup: (): { square: number } => {
        throw new RangeError('no room')
      },
      reward: () => 1,
    })
    const { lines } = await rescored(reader, environment)
    const message = expect.stringMatching(/^setup threw RangeError at test\/replay\/rescore\.test\.ts:\d+: no room$/)
    expect(lines[0]).toMatchObject({ outcome: 'reward_error', error: { code: 'setup_failed', message } })
  })

  test('keeps to its concurrency, and stops when its reader stops', async () => {
    await using runs = await temporaryRuns()
    await storeRun(runs.root, { environment: original, attempts: 2, script: () => 'right' })
    using reader = openRun(runs.root)
    let running = 0
    let most = 0
    const environment = defineEnvironment({
      ...base,
      reward: async () => {
        running += 1
        most = Math.max(most, running)
        await new Promise((resolve) => setImmediate(resolve))
        running -= 1
        return 1
      },
    })
    await rescored(reader, environment, { concurrency: 4 })
    expect(most).toBe(4)
    const rescoring = await rescoreRun(reader, { environment, concurrency: 2 })
    for await (const _line of rescoring) break
    expect(running).toBe(0)
    expect(rescoring.summary().rollouts).toBeLessThan(12)
  })

  test('cancels running rewards when its reader stops, and waits for their teardown', async () => {
    await using runs = await temporaryRuns()
    await storeRun(runs.root, { environment: original, script: () => 'right' })
    using reader = openRun(runs.root)
    const setUp: number[] = []
    const tornDown: number[] = []
    const reasons: unknown[] = []
    const environment = defineEnvironment({
      ...base,
      setup: ({ task }) => void setUp.push(task.number),
      reward: async ({ task, signal }) => {
        if (task.number === 0) return 1
        await once(signal, 'abort')
        reasons.push(signal.reason)
        return 0
      },
      teardown: async ({ task }) => {
        for (let turn = 0; turn < 5; turn += 1) await new Promise((resolve) => setImmediate(resolve))
        tornDown.push(task.number)
      },
    })
    const rescoring = await rescoreRun(reader, { environment, concurrency: 3 })
    for await (const { id } of rescoring) {
      expect(id).toBe('0-0')
      break
    }
    expect(new Set(setUp)).toEqual(new Set([0, 1, 2]))
    expect(new Set(tornDown)).toEqual(new Set(setUp))
    expect(reasons).toMatchObject([{ code: 'cancelled' }, { code: 'cancelled' }])
    expect(rescoring.summary().rollouts).toBe(1)
  })

  test('gives rewards the budget that they had in the run', async () => {
    await using runs = await temporaryRuns()
    const seen: Budget[] = []
    const environment = defineEnvironment({
      ...base,
      tools: {
        delegate: {
          parameters: z.object({}),
          run: async (_, { child }) => (await child({ prompt: 'Help.', tools: [] })).answer,
        },
      },
      limits: { maxTurns: 10, maxTokens: 1_000, maxCostUsd: 1 },
      reward: async ({ budget, judge: ask }) => {
        const { turnsLeft, tokensLeft, costLeftUsd, workingMsLeft, wallMsLeft } = budget
        seen.push({ turnsLeft, tokensLeft, costLeftUsd, workingMsLeft, wallMsLeft })
        await ask({ messages: [{ role: 'user', content: 'Is it good?' }] })
        return 1
      },
    })
    const usage = { calls: 1, input: 0, cachedInput: 0, output: 100, reasoning: 0 }
    await storeRun(runs.root, {
      environment,
      limit: 1,
      script: ({ messages }) => {
        const isFirst = messages.length === 1 && String(messages[0]?.content).startsWith('Number')
        return { message: isFirst ? calls({ delegate: {} }) : { role: 'assistant', content: 'right' }, usage }
      },
    })
    using reader = openRun(runs.root)
    await rescored(reader, environment)
    const [live, again] = seen
    if (!live || !again) throw new Error('there are two')
    // Two turns of its own and one of its child; the judge is on no budget.
    const spent = { turnsLeft: 7, tokensLeft: 700, costLeftUsd: expect.closeTo(0.9997, 9) as number }
    expect(live).toMatchObject(spent)
    expect(again).toMatchObject(spent)
    const { wallMs } = reader.rollout('0-0')?.timing ?? expect.unreachable('it has ended')
    // The record has whole milliseconds.
    expect(Math.abs(again.workingMsLeft - live.workingMsLeft)).toBeLessThanOrEqual(1)
    expect(live.workingMsLeft).toBeLessThan(defaultLimits.timeoutMs)
    expect(Math.abs(again.wallMsLeft - live.wallMsLeft)).toBeLessThanOrEqual(wallMs + 1)
  })

  test('runs offloaded rewards on threads, also with other options', async () => {
    await using runs = await temporaryRuns()
    const environment = join(import.meta.dirname, '../fixtures/offloaded.ts')
    await evaluate({ environment, model: 'sim', run: { root: runs.root, name: 'stored' } }).summary()
    using reader = openRun(runs.root)
    const rescoring = await rescoreRun(reader, { options: { bonus: 2 } })
    const lines = await Array.fromAsync(rescoring)
    expect(lines.map(({ before, after }) => [before, after])).toEqual([[20, 24]])
    await expect(rescored(reader, offloadedEnvironment)).rejects.toThrow('give the environment as a module')
  })
})

/** As the example has them. */
async function judgedTasks(): Promise<Iterable<unknown>> {
  const { default: example } = await import('../../examples/judged-answers/environment.ts')
  return (await example.tasks({})) as Iterable<unknown>
}

test('requires the environment again if the run was given it as an object', async () => {
  await using runs = await temporaryRuns()
  await storeRun(runs.root, { environment: original, script: () => 'right' })
  using reader = openRun(runs.root)
  await expect(rescoreRun(reader)).rejects.toThrow('given as an object')
})
