import { execFile } from 'node:child_process'
import { readFile, rename, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { evaluate } from 'millrace'
import { temporaryRuns } from 'millrace/testing'
import { describe, expect, test } from 'vitest'
import { fakeProcess } from '../support/cli/fake-terminal.ts'
import { main } from '../../src/cli/main.ts'
import { markedBlocks, page, root } from '../support/pages.ts'
import { millrace } from '../support/cli/millrace-process.ts'

const run = promisify(execFile)

async function command(folder: string, ...words: readonly string[]) {
  const parts = { ...fakeProcess({ env: { MILLRACE_RUNS: join(folder, 'runs') } }), cwd: folder }
  const code = await main(words, parts)
  return { code, stdout: parts.stdout.text, stderr: parts.stderr.text }
}

/** A folder with a run `sums` of an environment in it. */
async function withRun() {
  const folder = await temporaryRuns()
  const file = await write(folder.root, 'sums.ts', environment('Be brief.', 'answer.length > 0'))
  const summary = await evaluate({
    environment: file,
    model: 'sim',
    run: { root: join(folder.root, 'runs'), name: 'sums' },
  }).summary()
  expect(summary.scored).toBe(12)
  return folder
}

async function write(folder: string, name: string, content: string): Promise<string> {
  const file = join(folder, name)
  await writeFile(file, content)
  return file
}

const environment = (prompt: string, reward: string): string => `
import { defineEnvironment, z } from 'millrace'
export default defineEnvironment({
  name: 'sums',
  task: z.object({ a: z.number() }),
  tasks: () => Array.from({ length: 12 }, (_, a) => ({ a })),
  prompt: ({ task }) => \`What is \${task.a} + 1?\\n${prompt}\`,
  reward: { right: ({ task, answer }) => ${reward} },
})
`

// Seven processes, one after another.
test('the commands and the program in docs/replay.md run', async () => {
  await using folder = await temporaryRuns()
  const { text } = await page('docs/replay.md')
  const [commands] = markedBlocks(text, 'commands')
  const lines = commands?.code.trim().split('\n') ?? []
  expect(lines).toHaveLength(6)
  for (const line of lines) {
    const words = line.replace(/ *#.*/, '').split(' ').slice(2)
    expect(await millrace({ cwd: folder.root }, ...words), line).toMatchObject({ code: 0 })
  }
  const rescored = (await readFile(join(folder.root, 'rescored.jsonl'), 'utf8')).trimEnd().split('\n')
  expect(rescored).toHaveLength(40)
  expect(JSON.parse(rescored[0] ?? '')).toMatchObject({ id: '0-0', rewards: { correct: { weight: 1 } } })
  const [library] = markedBlocks(text, 'library')
  const file = join(folder.root, library?.argument ?? '')
  await writeFile(file, library?.code ?? '')
  const { stdout } = await run(
    process.execPath,
    ['--no-warnings', '--import', join(root, 'test/own-sources.ts'), file],
    { cwd: folder.root, env: { PATH: process.env['PATH'] } },
  )
  expect(stdout.split('mean:')).toHaveLength(3)
})

describe('replay, rescore and fork on the command line', () => {
  test('a replay shows the differences as text and JSON, and sets its exit code', async () => {
    await using folder = await withRun()
    const other = await write(folder.root, 'other.ts', environment('Be long.', 'task.a === 3'))
    const same = await command(folder.root, 'replay', 'sums', '3-0')
    expect(same).toMatchObject({ code: 0, stderr: '' })
    expect(same.stdout).toBe('3-0  identical: 2 messages, outcome completed, rewards and usage\n')
    // The id of a task is its index here, so that both lead to one rollout.
    expect(await command(folder.root, 'replay', 'sums', '3')).toEqual(same)
    const differs = await command(folder.root, 'replay', 'sums', '4-0', '--environment', other)
    expect(differs.code).toBe(1)
    for (const part of [
      '4-0  differs from its recording',
      'message 0 (user)',
      'reward ',
      'First difference: message 0 of 4-0 (user)\n  role: user\n  What is 4 + 1?\n- Be brief.\n+ Be long.\n',
    ]) {
      expect(differs.stdout).toContain(part)
    }
    const all = await command(folder.root, 'replay', 'sums', '--all', '--environment', other, '--limit', '2')
    expect(all.code).toBe(1)
    expect(all.stdout.match(/differs from its recording/g)).toHaveLength(2)
    expect(all.stdout).toMatch(/12 rollouts: 0 identical, 12 different\n$/)
    const json = await command(folder.root, 'replay', 'sums', '--all', '--json')
    const lines = json.stdout
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as object)
    expect(lines).toHaveLength(13)
    expect(lines.at(0)).toMatchObject({ type: 'rollout', rollout: '0-0', verdict: 'identical' })
    expect(lines.at(-1)).toEqual({ type: 'summary', rollouts: 12, identical: 12, different: 0, skipped: 0 })
  })

  test('rescoring shows both scores, and names missing ones', async () => {
    await using folder = await withRun()
    const other = await write(folder.root, 'third.ts', environment('Be brief.', 'task.a % 3 === 0'))
    const failing = await write(folder.root, 'fails.ts', environment('', 'Promise.reject(new Error("too much"))'))
    const third = await command(folder.root, 'rescore', 'sums', other)
    expect(third.code).toBe(0)
    expect(third.stdout).toMatch(
      /score +1\.000 \[0\.\d+, 1\.000\] +0\.333 \[0\.\d+, 0\.\d+\] +-0\.667 \[-0\.\d+, -0\.\d+\]/,
    )
    expect(third.stdout).toContain('8 with another reward')
    const fails = await command(folder.root, 'rescore', 'sums', failing, '--json')
    expect(fails.code).toBe(3)
    const lines = fails.stdout
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as object)
    expect(lines.at(-1)).toMatchObject({
      type: 'summary',
      after: { scored: 0 },
      failures: [{ count: 12, message: expect.stringMatching(/^reward "right" threw Error at .*: too much$/) }],
    })
    const written = await command(folder.root, 'rescore', 'sums', '--out', 'lines.jsonl')
    expect(written).toMatchObject({ code: 0, stderr: 'wrote 12 rollouts to lines.jsonl\n' })
    const parts = { ...fakeProcess({ env: { MILLRACE_RUNS: join(folder.root, 'runs') } }), cwd: folder.root }
    parts.stdout.destroy(Object.assign(new Error('write EPIPE'), { code: 'EPIPE' }))
    expect(await main(['rescore', 'sums', '--json', '--out', 'lines.jsonl'], parts)).toBe(0)
    expect(parts.stderr.text).toBe('wrote 12 rollouts to lines.jsonl, replacing its former content\n')
    expect((await readFile(join(folder.root, 'lines.jsonl'), 'utf8')).trimEnd().split('\n')).toHaveLength(12)
    const unwritable = await command(folder.root, 'rescore', 'sums', '--out', 'nowhere/lines.jsonl')
    expect(unwritable).toMatchObject({ code: 1 })
    expect(unwritable.stderr).toContain('choose another with --out [folder_unwritable]')
    const full = await command(folder.root, 'rescore', 'sums', '--out', '/dev/full')
    expect(full).toMatchObject({ code: 1, stdout: '' })
    expect(full.stderr).toContain(
      'the disk is full, so /dev/full cannot be written; free some space, then run the command again [disk_full]',
    )
  })

  test('rescoring fails with a note if rewards read a state that tools may have changed', async () => {
    await using folder = await temporaryRuns()
    const tool = `tools: { look: { parameters: z.object({}), run: () => 'nothing' } },`
    const source = environment('Be brief.', '1')
      .replace('({ task, answer }) => 1', '({ state }) => state.worth')
      .replace('  reward:', `  setup: () => ({ worth: 1 }),\n  ${tool}\n  reward:`)
    const file = await write(folder.root, 'sums.ts', source)
    const stored = { root: join(folder.root, 'runs'), name: 'sums' }
    await evaluate({ environment: file, model: 'sim', limit: 2, run: stored }).summary()
    const rescored = await command(folder.root, 'rescore', 'sums')
    expect(rescored).toMatchObject({
      code: 3,
      stdout: expect.stringContaining('Note: a reward of sums reads the state'),
    })
    const stateless = await write(folder.root, 'reuse.ts', source.replace('look: {', `look: { resume: 'reuse',`))
    const trusted = await command(folder.root, 'rescore', 'sums', stateless)
    expect(trusted).toMatchObject({ code: 0, stdout: expect.not.stringContaining('Note:') })
  })

  test('a row that was invalid in the run is not reported as changed', async () => {
    await using folder = await temporaryRuns()
    const rows = `.map((row) => (row.a === 2 ? { a: 'two' } : row))`
    const text = environment('Be brief.', '1').replace('({ a })),', `({ a }))${rows},`)
    const file = await write(folder.root, 'sums.ts', text)
    const summary = await evaluate({
      environment: file,
      model: 'sim',
      limit: 4,
      run: { root: join(folder.root, 'runs'), name: 'sums' },
    }).summary()
    expect(summary.outcomes).toMatchObject({ completed: 3, env_error: 1 })
    const rescored = await command(folder.root, 'rescore', 'sums')
    expect(rescored).toMatchObject({ code: 0 })
    expect(rescored.stdout).toContain('1 rollout had no score before either, with outcome env_error: ')
    expect(rescored.stdout).not.toContain('not scored')
    const one = await command(folder.root, 'replay', 'sums', '2-0')
    expect(one).toMatchObject({ code: 1, stderr: '' })
    expect(one.stdout).toContain('nothing ran: it was not a valid task when the run was made (')
    const all = await command(folder.root, 'replay', 'sums', '--all')
    expect(all).toMatchObject({ code: 0 })
    expect(all.stdout).toMatch(/4 rollouts: 3 identical, 0 different, 1 that cannot be replayed\n$/)
  })

  test('a wrong command is refused with one sentence', async () => {
    await using folder = await withRun()
    const cases: [words: string[], code: number, message: string][] = [
      [['replay', 'sums'], 2, 'which rollout? Name one'],
      [['replay', 'sums', '3-0', '--all'], 2, 'leave out --all, or 3-0'],
      [['replay', 'sum', '3-0'], 1, 'did you mean sums?'],
      [['replay', 'sums', '111-0'], 1, 'run sums has no rollout 111-0; the first that ended is'],
      [['replay', 'sums', 'sum'], 1, 'run sums has no rollout sum; rollouts are named <number of the task>-<attempt>'],
      [['replay', 'sums', '3-0', '--environment', './gone.ts'], 1, 'gone.ts'],
      [['rescore', 'sums', '--env.level=3'], 2, 'has no option "level"'],
      [['replay', 'sums', '3-0', '--env.level=3'], 2, 'has no option "level"'],
      [['fork', 'sums', '3-0', '--turn', '0', '--env.level=3'], 2, 'has no option "level"'],
      [['rescore', 'sums', '--judge', 'alive'], 2, 'did you mean live?'],
      [['fork', 'sums', '3-0'], 2, 'after which turn? Add --turn'],
      [
        ['fork', 'sums', '3-0', '--turn', '1'],
        2,
        'has 1 turn and cannot be forked after turn 1: --turn (turn) takes 0',
      ],
      [['fork', 'sums', '3-0', '--turn', '0', '--sim.skill=1'], 2, 'add -m sim to continue with the simulator'],
      [['fork', 'sums', '0-3', '--turn', '0'], 1, 'run sums has no rollout 0-3; the first that ended is'],
    ]
    for (const [words, code, message] of cases) {
      const ended = await command(folder.root, ...words)
      expect({ code: ended.code, stdout: ended.stdout }, words.join(' ')).toEqual({ code, stdout: '' })
      expect(ended.stderr).toContain(message)
    }
  })

  test('the error for a moved environment names the flag for its new path', async () => {
    await using folder = await withRun()
    const moved = join(folder.root, 'moved.ts')
    await rename(join(folder.root, 'sums.ts'), moved)
    for (const words of [
      ['replay', 'sums', '0-0'],
      ['rescore', 'sums'],
      ['fork', 'sums', '0-0', '--turn', '0'],
    ]) {
      const { code, stderr } = await command(folder.root, ...words)
      expect({ code, stderr }, words.join(' ')).toEqual({
        code: 1,
        stderr: expect.stringMatching(
          /run sums was made with the environment .*sums\.ts, which no longer exists; .* with --environment \(environment\)/,
        ),
      })
    }
    expect(await command(folder.root, 'replay', 'sums', '0-0', '--environment', moved)).toMatchObject({
      code: 0,
    })
    expect(await command(folder.root, 'rescore', 'sums', moved)).toMatchObject({ code: 0 })
  })

  test('the error for an environment with other options names the source of the options', async () => {
    await using folder = await temporaryRuns()
    const options = '  options: z.object({ level: z.number().default(2) }),\n'
    const source = environment('Be brief.', 'answer.length > 0')
    const own = await write(folder.root, 'own.ts', source.replace('  task:', `${options}  task:`))
    const other = await write(folder.root, 'other.ts', source)
    await evaluate({ environment: own, model: 'sim', run: { root: join(folder.root, 'runs'), name: 'sums' } }).summary()
    const ended = await command(folder.root, 'replay', 'sums', '3-0', '--environment', other)
    expect(ended.code).toBe(2)
    expect(ended.stderr).toContain('sums has no option "level"')
    expect(ended.stderr).toContain('It was given the options that run sums is stored with (level): add those')
  })

  test('a fork is its own run, and the same command finds it complete', async () => {
    await using folder = await withRun()
    const words = ['fork', 'sums', '3', '--turn', '0', '--system', 'Be kind.', '-n', '2', '--run', 'kind', '--quiet']
    expect(await command(folder.root, ...words)).toMatchObject({ code: 0 })
    expect((await command(folder.root, 'show', 'kind')).stdout).toContain('forked  from sums 3-0, after turn 0')
    const shown = await command(folder.root, 'show', 'kind', '3-1')
    expect(shown.stdout).toContain('▌ system\nBe kind.\n')
    const again = await command(folder.root, ...words)
    expect(again).toMatchObject({ code: 0 })
    expect(again.stderr).toContain('run kind was complete: 2 rollouts had ended')
    const file = JSON.parse(await readFile(join(folder.root, 'runs/kind/run.json'), 'utf8')) as { config: object }
    expect(file.config).toMatchObject({ forkedFrom: { run: 'sums', rollout: '3-0', turn: 0, system: 'Be kind.' } })
  })
})
