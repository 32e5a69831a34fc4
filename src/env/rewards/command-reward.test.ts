import { spawn } from 'node:child_process'
import { existsSync, readFileSync, watch } from 'node:fs'
import { mkdtempDisposable, readFile, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { MillraceError } from '../../errors/index.ts'
import { commandReward, type CommandRewardOptions } from './command-reward.ts'
import type { RewardContext } from '../define/context.ts'
import { rewardContext } from '../../../test/support/env/reward-context.ts'

type Context = RewardContext<{ expected: string }, undefined, object>

function rolloutWith(signal = new AbortController().signal): Context {
  const messages = [{ role: 'user' as const, content: 'What is it?' }]
  return rewardContext({ expected: '42' }, { messages, signal, outcome: 'max_turns', truncated: true })
}

async function shell(script: string, more: Partial<CommandRewardOptions> = {}, signal?: AbortSignal) {
  return await commandReward<Context['task'], undefined, object>({ command: ['/bin/sh', '-c', script], ...more })(
    rolloutWith(signal),
  )
}

/** A killed process stays in the table until its parent has taken note, which for an orphan can take the system a while. */
function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return !(existsSync('/proc/self/stat') && readFileSync(`/proc/${pid}/stat`, 'utf8').includes(') Z '))
  } catch {
    return false
  }
}

async function expectEnd(pid: number): Promise<void> {
  await expect.poll(() => isAlive(pid), { interval: 5 }).toBe(false)
}

describe('commandReward', () => {
  test('does not wait for a daemon of the program that holds the pipes open', async () => {
    await using folder = await mkdtempDisposable(join(tmpdir(), 'millrace-reward-'))
    const written = join(folder.path, 'pid')
    const daemon = `setsid sh -c 'echo $$ > ${written}.new; mv ${written}.new ${written}; exec sleep 600' &`
    const waits = `while [ ! -e ${written} ]; do sleep 0.05; done`
    try {
      expect(await shell(`${daemon} ${waits}; echo 0.5`, { timeoutMs: 60_000 })).toBe(0.5)
    } finally {
      process.kill(Number(readFileSync(written, 'utf8')), 'SIGKILL')
    }
  })

  test('passes the rollout as JSON and reads the last line', async () => {
    const program = `
      let text = ''
      process.stdin.on('data', (chunk) => { text += chunk }).on('end', () => {
        const { task, answer, messages, outcome, truncated } = JSON.parse(text)
        const isRight = task.expected === answer && messages.length === 1 && outcome === 'max_turns' && truncated
        console.log('thinking')
        console.log(JSON.stringify({ score: isRight ? 0.75 : 0 }))
      })`
    const reward = commandReward<Context['task'], undefined, object>({ command: [process.execPath, '--eval', program] })
    expect(await reward(rolloutWith())).toBe(0.75)
  })

  test.each([
    ['echo 0.5', 0.5],
    ['echo thinking; echo 1; echo', 1],
    ['echo \'{"score": -2, "why": "bad"}\'', -2],
  ])('reads the score from %s', async (script, score) => {
    expect(await shell(script)).toBe(score)
  })

  test.each([
    ['exit 3', 'ended with code 3'],
    ['echo oh no >&2; exit 1', 'ended with code 1; stderr ended with: oh no'],
    ['kill -TERM $$', 'was killed by SIGTERM'],
    ['echo good', 'the last line was "good"'],
    ['true', 'the last line was ""'],
    ['echo \'{"score": "1"}\'', 'must print a number or {"score": number}'],
    ['echo 1e999', 'must print a number'],
    ['head -c 2000000 /dev/zero', 'printed more than 1024 KB'],
  ])('fails on %s', async (script, message) => {
    await expect(shell(script)).rejects.toMatchObject({
      code: 'reward_failed',
      rawMessage: expect.stringContaining(message),
    })
  })

  test('reports a program that cannot be started', async () => {
    const reward = commandReward({ command: ['/nowhere/scorer'] })
    await expect(reward(rolloutWith())).rejects.toThrow('/nowhere/scorer cannot be started: is it installed')
  })

  test('accepts a program that does not read its input', async () => {
    const context = { ...rolloutWith(), answer: 'x'.repeat(5_000_000) }
    expect(await commandReward({ command: ['/bin/sh', '-c', 'exec 0<&-; echo 1'] })(context)).toBe(1)
  })

  test('passes no secrets', async () => {
    process.env['MILLRACE_TEST_API_KEY'] = 'secret'
    try {
      await using folder = await mkdtempDisposable(join(tmpdir(), 'millrace-command-'))
      await shell('env > seen; echo 1', { cwd: folder.path, env: { GIVEN: 'yes' } })
      const names = (await readFile(join(folder.path, 'seen'), 'utf8')).split('\n').map((line) => line.split('=')[0])
      expect(names).toEqual(expect.arrayContaining(['PATH', 'GIVEN']))
      // A shell adds the last two.
      const allowed = new Set(['PATH', 'HOME', 'LANG', 'GIVEN', '', 'PWD', 'SHLVL', 'OLDPWD', '_'])
      expect(names.filter((name) => !allowed.has(name ?? ''))).toEqual([])
    } finally {
      delete process.env['MILLRACE_TEST_API_KEY']
    }
  })

  test('a bash reads no start-up file, which could restore a removed secret', async () => {
    await using home = await mkdtempDisposable(join(tmpdir(), 'millrace-home-'))
    await writeFile(join(home.path, '.bashrc'), 'export FROM_BASHRC=1\n')
    const command = ['bash', '-c', 'echo ${FROM_BASHRC:-0}'] as const
    expect(await commandReward({ command, env: { HOME: home.path } })(rolloutWith())).toBe(0)
  })

  test('may run without a time limit', async () => {
    expect(await shell('echo 1', { timeoutMs: Infinity })).toBe(1)
  })

  test('kills the process group on timeout', async () => {
    await using folder = await mkdtempDisposable(join(tmpdir(), 'millrace-command-'))
    const script = 'sleep 60 & echo $! > pid; wait'
    await expect(shell(script, { cwd: folder.path, timeoutMs: 300 })).rejects.toThrow(
      'took longer than 0.3 s (timeoutMs)',
    )
    await expectEnd(Number(await readFile(join(folder.path, 'pid'), 'utf8')))
  })

  test('kills the process group when the rollout is stopped', async () => {
    await using folder = await mkdtempDisposable(join(tmpdir(), 'millrace-command-'))
    const controller = new AbortController()
    const reason = new MillraceError('cancelled', 'enough')
    const hasWritten = Promise.withResolvers<void>()
    using _watcher = disposableWatcher(folder.path, () => hasWritten.resolve())
    const scoring = shell('sleep 60 & echo $! > pid.new; mv pid.new pid; wait', { cwd: folder.path }, controller.signal)
    await hasWritten.promise
    controller.abort(reason)
    await expect(scoring).rejects.toBe(reason)
    await expectEnd(Number(await readFile(join(folder.path, 'pid'), 'utf8')))
    await expect(shell('echo 1', {}, controller.signal)).rejects.toBe(reason)
  })

  test('kills background processes without waiting for them', async () => {
    await using folder = await mkdtempDisposable(join(tmpdir(), 'millrace-command-'))
    expect(await shell('sleep 60 & echo $! > pid; echo 1', { cwd: folder.path })).toBe(1)
    await expectEnd(Number(await readFile(join(folder.path, 'pid'), 'utf8')))
  })

  test('kills the program when Millrace is killed', async () => {
    await using folder = await mkdtempDisposable(join(tmpdir(), 'millrace-command-'))
    const script = 'trap "" TERM HUP; sleep 600 & echo $$ $! > pid.new; mv pid.new pid; wait'
    const host = `
      import { commandReward } from ${JSON.stringify(new URL('command-reward.ts', import.meta.url).href)}
      const { signal } = new AbortController()
      const reward = commandReward({ command: ['/bin/sh', '-c', ${JSON.stringify(script)}], cwd: ${JSON.stringify(folder.path)} })
      await reward({ task: 1, answer: '', messages: [], outcome: 'stop', truncated: false, signal })`
    const hasWritten = Promise.withResolvers<void>()
    using _watcher = disposableWatcher(folder.path, () => hasWritten.resolve())
    const child = spawn(process.execPath, ['--input-type=module', '--eval', host], { stdio: 'inherit' })
    await hasWritten.promise
    child.kill('SIGKILL')
    const pids = (await readFile(join(folder.path, 'pid'), 'utf8')).split(' ').map(Number)
    expect(pids).toHaveLength(2)
    await Promise.all(pids.map(expectEnd))
  })

  test('runs at most the configured number of programs at once', async () => {
    await using folder = await mkdtempDisposable(join(tmpdir(), 'millrace-command-'))
    // Each takes the only place there is; a second one beside it could not make the folder.
    const script = 'mkdir place && rmdir place && echo 1'
    const reward = commandReward({ command: ['/bin/sh', '-c', script], cwd: folder.path, maxConcurrency: 1 })
    const scores = await Promise.all(Array.from({ length: 8 }, async () => await reward(rolloutWith())))
    expect(scores).toEqual([1, 1, 1, 1, 1, 1, 1, 1])
  })
})

function disposableWatcher(folder: string, onPid: () => void): Disposable {
  const watcher = watch(folder, (_event, name) => {
    if (name === 'pid') onPid()
  })
  return { [Symbol.dispose]: () => watcher.close() }
}
