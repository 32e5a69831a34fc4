import { rmSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { describe, expect, it } from 'vitest'
import { emptyUsage } from '../../../schema/index.ts'
import { temporaryRuns } from '../../../testing/index.ts'
import { fakeProcess } from '../../../../test/support/cli/fake-terminal.ts'
import { writeRun, type WrittenRollout } from '../../../../test/support/cli/write-run.ts'
import { main } from '../../main.ts'

async function show(root: string, ...args: string[]) {
  const parts = fakeProcess({ env: { MILLRACE_RUNS: root } })
  const code = await main(['show', ...args], parts)
  return { code, stdout: parts.stdout.text, stderr: parts.stderr.text }
}

const failed = (task: number): WrittenRollout => ({
  record: {
    id: `${task}-0`,
    task: { index: task, id: `task-${task}` },
    outcome: 'model_error',
    reward: null,
    rewards: {},
    turns: 1,
    error: { code: 'model_server_error', message: 'the backend answered 500 six times' },
  },
})

const talk: WrittenRollout = {
  record: { metrics: { steps: 3 }, toolErrors: 1 },
  messages: [
    { message: { role: 'system', content: 'Be brief.' } },
    { message: { role: 'user', content: [{ type: 'text', text: 'What is 2+2?' }] } },
    {
      message: {
        role: 'assistant',
        content: null,
        reasoning_content: 'A sum.',
        tool_calls: [
          { id: 'c1', type: 'function', function: { name: 'calculator', arguments: '{"expression":"2+2"}' } },
        ],
      },
      meta: {
        call: {
          model: 'sim',
          backend: 'b',
          finishReason: 'tool_calls',
          usage: { ...emptyUsage(), calls: 1, input: 120, output: 12 },
          cost: 0,
          tries: 2,
          ms: 340,
          waitMs: 55,
        },
      },
    },
    {
      message: { role: 'tool', tool_call_id: 'c1', content: '\u001b[2J4' },
      meta: { tool: { name: 'calculator', status: 'failed', ms: 3 } },
    },
    { message: { role: 'assistant', content: 'Answer: 4' } },
  ],
}

describe('millrace show <run>', () => {
  it('shows the results from the records', async () => {
    await using runs = await temporaryRuns()
    writeRun({ root: runs.root, name: 'nightly', rollouts: [talk, failed(1)] })
    const { code, stdout, stderr } = await show(runs.root, 'nightly')
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
    expect(stdout).toContain('arithmetic · sim')
    expect(stdout).toContain('1 of 2 rollouts scored · 2 tasks')
    expect(stdout).toMatch(/model_error +1 +50% +not scored/)
    expect(stdout).toContain('millrace show nightly --outcome model_error')
  })

  it('uses the newest run for latest, unless a run has that name; prune does not', async () => {
    await using runs = await temporaryRuns()
    const none = await show(runs.root, 'latest')
    expect(none).toMatchObject({ code: 1, stderr: expect.stringContaining(`there is no run in ${runs.root}`) })
    writeRun({ root: runs.root, name: 'zebra', rollouts: [talk] })
    writeRun({ root: runs.root, name: 'apple', rollouts: [talk, failed(1)] })
    const newest = async (): Promise<string> =>
      (JSON.parse((await show(runs.root, 'latest', '--json')).stdout) as { run: string }).run
    expect(await newest()).toBe('apple')
    expect((await show(runs.root, 'latest', '1-0')).stdout).toContain('model_error')
    const parts = fakeProcess({ env: { MILLRACE_RUNS: runs.root } })
    expect(await main(['prune', 'latest', '--yes'], parts)).toBe(2)
    expect(parts.stderr.text).toContain('give its own name; the newest one is apple')
    writeRun({ root: runs.root, name: 'latest', rollouts: [talk] })
    expect(await newest()).toBe('latest')
  })

  it('lists rollouts by reward, outcome and turns, filtered and sorted', async () => {
    await using runs = await temporaryRuns()
    const scored = [
      [0, 1, 4],
      [1, 0.5, 2],
      [2, 0, 9],
      [3, 0.25, 3],
      [4, 0, 2],
    ].map(([index = 0, reward = 0, turns = 0]) => ({
      record: { id: `${index}-0`, task: { index, id: `task-${index}` }, reward, turns },
    }))
    writeRun({ root: runs.root, name: 'nightly', rollouts: [...scored, failed(5)] })
    const ids = async (...args: string[]): Promise<string[]> => {
      const { stdout, stderr } = await show(runs.root, 'nightly', ...args)
      expect(stderr).toBe('')
      return Array.from(stdout.matchAll(/^(\d)-0 /gm), ([, id = '']) => id)
    }
    expect(await ids('--sort', 'reward')).toEqual(['2', '4', '3', '1', '0', '5'])
    expect(await ids('--sort', 'reward', '--reverse')).toEqual(['0', '1', '3', '2', '4', '5'])
    expect(await ids('--sort', 'turns', '--reverse', '--limit', '2')).toEqual(['2', '0'])
    expect(await ids('--sort', 'outcome')).toEqual(['0', '1', '2', '3', '4', '5'])
    expect(await ids('--sort', 'outcome', '--reverse')).toEqual(['5', '0', '1', '2', '3', '4'])
    expect(await ids('--reward', '0')).toEqual(['2', '4'])
    expect(await ids('--reward', '<1')).toEqual(['1', '2', '3', '4'])
    expect(await ids('--reward', '0.25..0.5')).toEqual(['1', '3'])
    expect(await ids('--reward', '>0.25')).toEqual(['0', '1'])
    expect(await ids('--reward', 'none')).toEqual(['5'])
    expect(await ids('--turns', '3..')).toEqual(['0', '2', '3'])
    expect(await ids('--turns', '..2', '--outcome', 'completed', '--reward', '..0.4')).toEqual(['4'])
    const { stdout } = await show(runs.root, 'nightly', '--reward', '..0.5', '--sort', 'turns', '--limit', '1')
    expect(stdout).toMatch(/^1-0 +task-1 +completed +0\.500 +2\n3 more; --limit shows them$/m)
    const json = await show(runs.root, 'nightly', '--turns', '9', '--json')
    expect(JSON.parse(json.stdout)).toMatchObject({ id: '2-0', reward: 0, turns: 9 })
    expect((await show(runs.root, 'nightly', '--turns', '77')).stdout).toContain('no rollout of nightly has ended with')
  })

  it.each([
    [['--reward', 'high'], '--reward takes a number, a range'],
    [['--turns', '1..2..3'], '--turns takes a number, a range'],
    [['--turns', '..'], '--turns takes a number, a range'],
    [['--reward', '1..0'], 'the range begins after its end'],
    [['--reverse'], '--reverse needs --sort'],
    [['0-0', '--sort', 'turns'], '--sort applies to a list of rollouts'],
  ])('refuses %j', async (args, message) => {
    await using runs = await temporaryRuns()
    writeRun({ root: runs.root, name: 'nightly', rollouts: [talk] })
    expect(await show(runs.root, 'nightly', ...args)).toMatchObject({
      code: 2,
      stdout: '',
      stderr: expect.stringContaining(message),
    })
  })

  it('names ids shared by several tasks, except in a served run', async () => {
    await using runs = await temporaryRuns()
    const rollouts = [0, 1].map((index) => ({ record: { id: `${index}-0`, task: { index, id: 'same' } } }))
    writeRun({ root: runs.root, name: 'twice', rollouts })
    expect((await show(runs.root, 'twice')).stdout).toContain(
      'notice  several tasks have the id same: remove duplicates, or give each task its own id',
    )
    expect(JSON.parse((await show(runs.root, 'twice', '--json')).stdout)).toMatchObject({ repeatedTaskIds: ['same'] })
    writeRun({ root: runs.root, name: 'served', rollouts, isServed: true, end: 'drained' })
    expect((await show(runs.root, 'served')).stdout).not.toContain('notice')
  })

  it('counts the tasks of a served run, whose requests set the number of attempts', async () => {
    await using runs = await temporaryRuns()
    const rollouts = ['0-0', '1-0', '1-1'].map((id) => {
      const [index, sample] = id.split('-').map(Number) as [number, number]
      return { record: { id, sample, task: { index, id: `task-${index}` } } }
    })
    writeRun({ root: runs.root, name: 'served', rollouts, isServed: true, end: 'drained' })
    const { stdout } = await show(runs.root, 'served')
    expect(stdout).toContain('3 of 3 rollouts scored · 2 tasks')
    expect(stdout).toContain('2 of 2 tasks scored')
  })

  it('shows how an unfinished run ended, and gives JSON', async () => {
    await using runs = await temporaryRuns()
    writeRun({ root: runs.root, name: 'cut', rollouts: [talk], end: 'drained', attempts: 2 })
    expect((await show(runs.root, 'cut')).stdout).toContain('drained, can be continued')
    const summary = JSON.parse((await show(runs.root, 'cut', '--json')).stdout) as Record<string, unknown>
    expect(summary).toMatchObject({
      run: 'cut',
      end: 'drained',
      scored: 1,
      attemptsPerTask: 2,
      pass: [{ tasks: 0 }, {}],
    })
  })

  it('shows the missing tool servers of the run and of a rollout', async () => {
    await using runs = await temporaryRuns()
    const missingServers = [{ server: 'other', cause: 'it exited with code 3' }]
    const without = { ...talk, record: { ...talk.record, missingServers } }
    writeRun({ root: runs.root, name: 'nightly', rollouts: [without, failed(1)] })
    expect((await show(runs.root, 'nightly')).stdout).toContain(
      'tool server other was missing in 1 of 2 rollouts: it exited with code 3\n',
    )
    expect(JSON.parse((await show(runs.root, 'nightly', '--json')).stdout)).toMatchObject({
      missingServers: [{ server: 'other', rollouts: 1, cause: 'it exited with code 3' }],
    })
    expect((await show(runs.root, 'nightly', '0-0')).stdout).toContain(
      'missing   tool server other: it exited with code 3\n',
    )
    expect(JSON.parse((await show(runs.root, 'nightly', '0-0', '--json')).stdout)).toMatchObject({ missingServers })
    expect((await show(runs.root, 'nightly', '1-0')).stdout).not.toContain('missing')
  })

  it('accepts the path of a folder', async () => {
    await using runs = await temporaryRuns()
    writeRun({ root: runs.root, name: 'nightly', rollouts: [talk] })
    expect((await show('/nowhere', `${runs.root}/nightly`)).code).toBe(0)
  })

  it('suggests the nearest run name', async () => {
    await using runs = await temporaryRuns()
    writeRun({ root: runs.root, name: 'nightly', rollouts: [] })
    const { code, stderr } = await show(runs.root, 'nigthly')
    expect(code).toBe(1)
    expect(stderr).toContain(`there is no run nigthly in ${runs.root}; did you mean nightly? [run_not_found]`)
    expect((await show(runs.root, 'other')).stderr).toContain('npx millrace list shows all runs')
  })

  it('treats a path as a path, not as a run name', async () => {
    await using runs = await temporaryRuns()
    writeRun({ root: runs.root, name: 'nightly', rollouts: [] })
    const { code, stderr } = await show('/nowhere', `${runs.root}/nigthly`)
    expect(code).toBe(1)
    expect(stderr).toContain(`there is no run nigthly in ${runs.root}; did you mean nightly? [run_not_found]`)
    expect((await show('/nowhere', `${runs.root}/other`)).stderr).toContain(
      `there is no run other in ${runs.root}; npx millrace list --runs ${runs.root} shows all runs`,
    )
    const inFile = join(runs.root, 'nightly', 'run.json')
    expect((await show('/nowhere', `${inFile}/x`)).stderr).toContain(`there is no run x in ${inFile}; `)
  })
})

describe('millrace show of a rollout that failed', () => {
  it('keeps the lines of a traceback', async () => {
    await using runs = await temporaryRuns()
    const message = 'stderr ended with: Traceback:\n  File "score.py", line 4\nKeyError: 1'
    const error = { code: 'reward_failed' as const, message }
    const rollouts = [{ record: { outcome: 'reward_error' as const, reward: null, error } }]
    writeRun({ root: runs.root, name: 'nightly', rollouts })
    const { stdout } = await show(runs.root, 'nightly', '0-0')
    expect(stdout).toMatch(
      /^error +stderr ended with: Traceback:\n +File "score.py", line 4\n +KeyError: 1 \[reward_failed\]$/m,
    )
  })
})

describe('millrace show of a run without its database', () => {
  it('names the missing file instead of a missing run', async () => {
    await using runs = await temporaryRuns()
    writeRun({ root: runs.root, name: 'nightly', rollouts: [talk] })
    rmSync(join(runs.root, 'nightly', 'journal.sqlite'))
    expect(await show(runs.root, 'nightly')).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(
        /the run in .*nightly has no journal\.sqlite; restore that file, .* \[store_failed\]/,
      ),
    })
  })
})

describe('millrace show <run> --outcome', () => {
  it('lists rollouts up to the limit, with the number of the others', async () => {
    await using runs = await temporaryRuns()
    writeRun({ root: runs.root, name: 'nightly', rollouts: [talk, failed(1), failed(2), failed(3)] })
    const { stdout } = await show(runs.root, 'nightly', '--outcome', 'model_error', '--limit', '2')
    const lines = stdout.trimEnd().split('\n')
    expect(lines[0]).toMatch(/^rollout +task +outcome +reward +turns +error$/)
    expect(lines[1]).toMatch(/^1-0 +task-1 +model_error +– +1 +the backend answered 500 six times$/)
    expect(lines.slice(3)).toEqual(['1 more; --limit shows them'])
    expect((await show(runs.root, 'nightly', '--outcome', 'any')).stdout.trimEnd().split('\n')).toHaveLength(5)
    expect((await show(runs.root, 'nightly', '--outcome', 'stale')).stdout).toBe(
      'no rollout of nightly has ended as stale\n',
    )
    const json = (await show(runs.root, 'nightly', '--outcome', 'any', '--json')).stdout.trimEnd().split('\n')
    expect(json.map((line) => (JSON.parse(line) as { id: string }).id)).toEqual(['0-0', '1-0', '2-0', '3-0'])
  })
})

describe('millrace show <run> <rollout>', () => {
  it('does not show a child as waiting, because only its parent accepts its result', async () => {
    await using runs = await temporaryRuns()
    const child = { record: { id: '0-0/c', reward: null, rewards: {} }, parent: '0-0' }
    writeRun({ root: runs.root, name: 'nightly', rollouts: [talk, child] })
    const { stdout } = await show(runs.root, 'nightly', '0-0/c')
    expect(stdout).toContain('0-0/c  task')
    expect(stdout).not.toContain('waits')
    expect(JSON.parse((await show(runs.root, 'nightly', '0-0/c', '--json')).stdout)).not.toHaveProperty('waitsFor')
  })

  it('is a transcript with reasoning, calls, results, rewards and timings', async () => {
    await using runs = await temporaryRuns()
    writeRun({ root: runs.root, name: 'nightly', rollouts: [talk] })
    const { code, stdout } = await show(runs.root, 'nightly', '0-0')
    expect(code).toBe(0)
    for (const part of [
      '0-0  task task-0 · completed · reward 1.000',
      '▌ system\nBe brief.',
      '▌ user\nWhat is 2+2?',
      '▌ assistant  340ms · 120 in, 12 out · waited 55ms · 2 tries\nA sum.\n→ calculator {"expression":"2+2"}',
      '▌ tool calculator  failed · 3.0ms\n4',
      '▌ assistant\nAnswer: 4',
      'outcome   completed · 2 turns · 1 tool call, 1 failed',
      'reward    1.000 = correct 1.000 × 1',
      'metrics   steps 3.000',
      'time      wall 900ms · model 700ms · tools 50ms · reward 3.0ms · wait 100ms',
    ]) {
      expect(stdout).toContain(part)
    }
  })

  it('has the model calls of children, whose turns are not its own', async () => {
    await using runs = await temporaryRuns()
    const usage = { ...emptyUsage(), calls: 9 }
    writeRun({
      root: runs.root,
      name: 'nightly',
      rollouts: [{ record: { turns: 0, toolCalls: 4, children: 3, usage } }],
    })
    const { stdout } = await show(runs.root, 'nightly', '0-0')
    expect(stdout).toContain('outcome   completed · 0 turns · 9 model calls · 4 tool calls · 3 children')
  })

  it('has shortened judge replies and rollout information', async () => {
    await using runs = await temporaryRuns()
    const long = `It is right.\n${'x'.repeat(1000)}`
    const info = { seed: 7, where: 'here', list: [1, 2] }
    writeRun({
      root: runs.root,
      name: 'it',
      rollouts: [{ record: { info }, verdicts: [long, ...Array.from({ length: 11 }, (_, n) => `Score: ${n}`)] }],
    })
    const { stdout } = await show(runs.root, 'it', '0-0')
    expect(stdout).toMatch(/^judge {5}the-judge: It is right\. x{200,300}…\n {10}the-judge: Score: 0\n/m)
    expect(stdout).toContain('and 2 more: see --json')
    expect(stdout).toMatch(/^notes {5}seed: 7\n {10}where: here\n {10}list: \[1,2\]$/m)
    const { verdicts } = JSON.parse((await show(runs.root, 'it', '0-0', '--json')).stdout) as { verdicts: unknown[] }
    expect(verdicts).toHaveLength(12)
    expect(verdicts[0]).toEqual({ model: 'the-judge', said: long })
  })

  it('shows the task in short, and in full as JSON', async () => {
    await using runs = await temporaryRuns()
    const taskRow = { question: `What is 2+2?\n${'x'.repeat(400)}`, target: 4, tags: ['sum'] }
    const child = { record: { id: '0-0.a' }, parent: '0-0', taskRow }
    const rollouts: WrittenRollout[] = [
      { record: {}, taskRow },
      child,
      { record: { id: '1-0', task: { index: 1, id: 'one' } }, taskRow: 'just a text' },
      { record: { id: '2-0', task: { index: 2, id: 'two' } } },
    ]
    writeRun({ root: runs.root, name: 'it', rollouts })
    const { stdout } = await show(runs.root, 'it', '0-0')
    expect(stdout).toMatch(
      /^0-0 .*\ntask {6}question: What is 2\+2\? ?x{200,300}…\n {10}target: 4\n {10}tags: \["sum"\]\n\n▌ user/,
    )
    expect(JSON.parse((await show(runs.root, 'it', '0-0', '--json')).stdout)).toMatchObject({ taskRow })
    expect((await show(runs.root, 'it', '1-0')).stdout).toMatch(/^1-0 .*\ntask {6}row: just a text\n\n/)
    // One was asked by its parent, and one is of a run that does not keep rows.
    for (const id of ['0-0.a', '2-0']) expect((await show(runs.root, 'it', id)).stdout).toMatch(/^\S+ .*\n\n▌ user/)
  })

  it('shows every attempt and why it failed', async () => {
    await using runs = await temporaryRuns()
    const second = { ...talk, record: { ...talk.record, attempt: 2 } }
    const first = { record: { ...failed(0).record, id: '0-0', attempt: 1 } }
    writeRun({ root: runs.root, name: 'nightly', rollouts: [first, second] })
    const { stdout } = await show(runs.root, 'nightly', '0-0')
    expect(stdout).toContain('attempts  1 model_error: the backend answered 500 six times')
    expect(stdout).toContain('          2 completed')
  })

  it('is JSON with --json', async () => {
    await using runs = await temporaryRuns()
    writeRun({ root: runs.root, name: 'nightly', rollouts: [talk] })
    const rollout = JSON.parse((await show(runs.root, 'nightly', '0-0', '--json')).stdout) as Record<string, unknown>
    expect(rollout).toMatchObject({ id: '0-0', reward: 1, attempts: [{ attempt: 1, outcome: 'completed' }] })
    expect(rollout['messages']).toHaveLength(5)
  })

  it('lists the rollouts if the given one does not exist', async () => {
    await using runs = await temporaryRuns()
    writeRun({ root: runs.root, name: 'nightly', rollouts: [talk] })
    const { code, stderr } = await show(runs.root, 'nightly', '7-0')
    expect(code).toBe(1)
    expect(stderr).toContain('run nightly has no rollout 7-0; the first that ended is 0-0')
  })

  it('does not match a rollout whose task is missing', async () => {
    await using runs = await temporaryRuns()
    writeRun({ root: runs.root, name: 'nightly', rollouts: [talk] })
    const database = new DatabaseSync(join(runs.root, 'nightly', 'journal.sqlite'))
    database.exec('DELETE FROM task')
    database.close()
    expect((await show(runs.root, 'nightly', 'undefined-0')).stderr).toContain('has no rollout undefined-0')
    expect((await show(runs.root, 'nightly', '0')).stdout).toContain('0-0  task')
  })

  it('accepts the index or id of a task for its only rollout, and lists several', async () => {
    await using runs = await temporaryRuns()
    const second = { record: { ...failed(2).record, id: '2-1', sample: 1 } }
    writeRun({ root: runs.root, name: 'nightly', rollouts: [talk, failed(1), failed(2), second] })
    for (const given of ['1', 'task-1']) {
      expect((await show(runs.root, 'nightly', given)).stdout).toContain('1-0  task task-1 · model_error')
    }
    const several = await show(runs.root, 'nightly', 'task-2')
    expect(several.code).toBe(1)
    expect(several.stderr).toContain('task-2 matches several rollouts of run nightly; name one: 2-0, 2-1')
    expect((await show(runs.root, 'nightly', 'task-2-1')).stdout).toContain('2-1  task task-2 · model_error')
    const none = await show(runs.root, 'nightly', 't7')
    expect(none.stderr).toContain(
      'run nightly has no rollout t7; rollouts are named <number of the task>-<attempt>, and the first that ended is 0-0',
    )
  })

  it('reads a number as a task index, and mentions the task with that id', async () => {
    await using runs = await temporaryRuns()
    // The task at index 0 has the id 1, as in a file whose rows are counted from 1.
    const rollouts = ['0-0', '1-0', '2-0', '2-1'].map((id) => {
      const [index = 0, sample = 0] = id.split('-').map(Number)
      return { record: { id, sample, task: { index, id: String(index + 1) } } }
    })
    writeRun({ root: runs.root, name: 'rows', rollouts })
    for (const [given, shown, stderr] of [
      [
        '1-0',
        '1-0  task 2 ',
        '1-0 is read as the number of a task, counted from 0; as the id of a task it would be 0-0\n',
      ],
      ['1', '1-0  task 2 ', '1 is read as the number of a task, counted from 0; as the id of a task it would be 0-0\n'],
      ['0-0', '0-0  task 1 ', ''],
      ['3-1', '2-1  task 3 ', ''],
    ] as const) {
      expect(await show(runs.root, 'rows', given)).toEqual({ code: 0, stdout: expect.stringContaining(shown), stderr })
    }
    const several = await show(runs.root, 'rows', '2')
    expect(several.stderr).toContain(
      '2 matches several rollouts of run rows; name one: 2-0, 2-1 (2 is read as the number of a task, counted from 0; as the id of a task it would be 1-0)',
    )
    expect((await show(runs.root, 'rows', '3')).stderr).toContain('several rollouts of run rows; name one: 2-0, 2-1 [')
  })

  it('lists the rollouts of tasks with the same id', async () => {
    await using runs = await temporaryRuns()
    const rollouts = [0, 1].map((index) => ({ record: { id: `${index}-0`, sample: 0, task: { index, id: 'same' } } }))
    writeRun({ root: runs.root, name: 'twice', rollouts })
    const { stderr } = await show(runs.root, 'twice', 'same-0')
    expect(stderr).toContain('same-0 matches several rollouts of run twice; name one: 0-0, 1-0')
  })

  it('skips unreadable rollouts, and names them', async () => {
    await using runs = await temporaryRuns()
    const rollouts = [0, 1, 2].map((index) => ({ record: { id: `${index}-0`, task: { index, id: `task-${index}` } } }))
    writeRun({ root: runs.root, name: 'nightly', rollouts })
    using database = new DatabaseSync(join(runs.root, 'nightly', 'journal.sqlite'))
    database.exec(`UPDATE rollout SET record = '{"id":' WHERE id = '1-0'`)
    const { code, stdout } = await show(runs.root, 'nightly')
    expect(code).toBe(0)
    expect(stdout).toContain('2 of 2 rollouts scored')
    expect(stdout).toMatch(/notice {2}1-0 cannot be read and is left out here; why: .* show nightly 1-0$/m)
    const damaged = await show(runs.root, 'nightly', '1-0')
    expect(damaged).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('the result of rollout 1-0 cannot be read;'),
    })
    expect(await show(runs.root, 'nightly', 'task-2-0')).toMatchObject({ code: 0 })
    const listed = await show(runs.root, 'nightly', '--outcome', 'any')
    expect(listed.stdout).toMatch(/^1-0 +task-1 +completed +– +– +the result of rollout 1-0 cannot be read;/m)

    const summary = JSON.parse((await show(runs.root, 'nightly', '--json')).stdout) as object
    expect(summary).toMatchObject({ rollouts: 2, unreadable: { rollouts: 1, ids: ['1-0'] } })
    const { stdout: lines } = await show(runs.root, 'nightly', '--outcome', 'any', '--json')
    expect(lines.split('\n')[1]).toMatch(/^\{"kind":"damaged","id":"1-0"/)
    database.exec("UPDATE rollout SET record = '{' WHERE id = '2-0'")
    expect((await show(runs.root, 'nightly')).stdout).toContain('1-0 and 1 other cannot be read and are left out here;')
  })

  it('shows what a rollout was doing at its time limit', async () => {
    await using runs = await temporaryRuns()
    const record = { outcome: 'agent_timeout', truncated: true, cutOffIn: 'tool search' } as const
    writeRun({ root: runs.root, name: 'nightly', rollouts: [{ record: { id: '0-0', ...record } }] })
    expect((await show(runs.root, 'nightly', '0-0')).stdout).toMatch(/^cut off +in tool search$/m)
    const listed = await show(runs.root, 'nightly', '--outcome', 'agent_timeout')
    expect(listed.stdout).toMatch(/^0-0 .* agent_timeout .* cut off in tool search$/m)
  })
})
