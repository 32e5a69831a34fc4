import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { MillraceError } from '../../../errors/index.ts'
import type { EvaluateOptions } from '../../../eval/index.ts'
import { temporaryRuns } from '../../../testing/index.ts'
import { FakeEvaluation, sampleRecord, sampleSummary } from '../../../../test/support/cli/fake-evaluation.ts'
import { fakeProcess } from '../../../../test/support/cli/fake-terminal.ts'
import { openIo } from '../../terminal/io.ts'
import { parseCommandLine } from '../../command-line/parse-command-line.ts'
import { command as evalCommand } from './eval-command.ts'
import { runEval } from './run-eval.ts'

interface Options {
  readonly args?: readonly string[]
  readonly evaluation?: FakeEvaluation
  readonly columns?: number
  readonly env?: Record<string, string>
  readonly cwd?: string
}

function start({ args = ['arithmetic', '-m', 'sim'], evaluation = new FakeEvaluation(), ...more }: Options = {}) {
  const parts = fakeProcess(more)
  const asked: EvaluateOptions[] = []
  const evaluate = (options: EvaluateOptions) => {
    asked.push(options)
    return evaluation
  }
  const io = openIo({ ...parts, ...(more.cwd !== undefined && { cwd: more.cwd }) })
  const ended = Promise.try(() => runEval(parseCommandLine(evalCommand, args), io, evaluate))
  return { ...parts, ended, asked, evaluation }
}

async function optionsFor(...args: string[]): Promise<EvaluateOptions | undefined> {
  const { ended, asked } = start({ args })
  await ended
  return asked[0]
}

/** Resolves once the condition holds; looks again after each turn of the loop. */
async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise((resolve) => setImmediate(resolve))
}

describe('millrace eval: options', () => {
  it('names flags, not options of the library, if a configuration of NeMo Gym does not fit', async () => {
    await using folder = await temporaryRuns()
    const agent = { responses_api_agents: { simple_agent: { resources_server: { name: 'res' } } } }
    const blocks = { res: { resources_servers: { counter: {} } }, ag: agent }
    writeFileSync(join(folder.root, 'config.yaml'), JSON.stringify(blocks))
    const args = ['--nemo-gym', 'config.yaml', '-i', 'rows.jsonl', '-m', 'sim']
    const message =
      'the configuration has no port for the resources server res: start it, and give its address as --nemo-gym.url=<address>'
    await expect(start({ args, cwd: folder.root }).ended).rejects.toMatchObject({
      code: 'config_invalid',
      rawMessage: message,
    })
  })

  it('have defaults for few flags', async () => {
    expect(await optionsFor('arithmetic', '-m', 'sim')).toEqual({
      environment: 'arithmetic',
      model: 'sim',
      models: {},
      attempts: 1,
      concurrency: 64,
      limits: {},
      sampling: {},
      run: { resume: 'auto' },
    })
  })

  it('hold everything that the flags set', async () => {
    const line =
      './env.ts -m sim --judge sim -n 4 -c 8 --judge-concurrency 2 --limit 9 --max-turns 3 --max-rollout-tokens 1000 ' +
      '--timeout 90 --wall-timeout 1h --max-cost 5 --max-rollout-cost 0.5 --seed 7 --run nightly --runs out ' +
      '--retry-failed --retries 1 --tokens --workers auto --worker-timeout 1m --max-worker-age 2h --max-worker-memory 512 --no-preflight --pass-threshold 0.5 --env.size=3 --agent refine --agent.turns=2 ' +
      '--sim.skill=0.8 --temperature 0.7 --top-p 0.9 --max-tokens 64 --stop END --reasoning-effort low ' +
      '--sampling.min_p=0.1 --rpm 60 --tpm 1000 --max-wait 10m --price.input 1 --price.output 2 --stream'
    const options = await optionsFor(...line.split(' '))
    expect(options).toEqual({
      environment: './env.ts',
      options: { size: 3 },
      agent: { name: 'refine', turns: 2 },
      model: {
        name: 'sim',
        simulator: { skill: 0.8 },
        stream: true,
        price: { input: 1, output: 2 },
        requestsPerMinute: 60,
        tokensPerMinute: 1000,
        maxWaitMs: 600_000,
      },
      models: {},
      judge: 'sim',
      attempts: 4,
      concurrency: 8,
      judgeConcurrency: 2,
      limit: 9,
      limits: { maxTurns: 3, maxTokens: 1000, maxCostUsd: 0.5, timeoutMs: 90_000, wallTimeoutMs: 3_600_000 },
      sampling: {
        temperature: 0.7,
        topP: 0.9,
        maxTokens: 64,
        stop: ['END'],
        reasoningEffort: 'low',
        extra: { min_p: 0.1 },
      },
      seed: 7,
      captureTokens: true,
      retries: 1,
      maxCostUsd: 5,
      passThreshold: 0.5,
      workers: 'auto',
      supervision: { replaceAfterMs: 60_000, maxAgeMs: 7_200_000, maxMemoryBytes: 512 * 1024 * 1024 },
      preflight: false,
      run: { root: 'out', name: 'nightly', resume: 'auto', retryFailed: true },
    })
  })

  it('use every declared flag', async () => {
    const { flags, ...invocation } = parseCommandLine(evalCommand, ['arithmetic', '-m', 'sim'])
    const read = new Set<string>()
    const watched = new Proxy(flags, {
      get: (target, name: string) => {
        read.add(name)
        return Reflect.get(target, name) as unknown
      },
    })
    await runEval({ ...invocation, flags: watched }, openIo(fakeProcess()), () => new FakeEvaluation())
    expect([...read].toSorted()).toEqual(Object.keys(evalCommand.flags).toSorted())
  })

  it('count workers', async () => {
    expect(await optionsFor('x', '-m', 'sim', '--workers', '3')).toMatchObject({ workers: 3 })
    for (const wrong of ['0', '2.5', 'many']) {
      await expect(optionsFor('x', '-m', 'sim', '--workers', wrong)).rejects.toMatchObject({
        code: 'usage',
        rawMessage: `--workers is a whole number of at least 1, or auto, not ${wrong}`,
      })
    }
  })

  it('name an endpoint if one is given', async () => {
    const args = ['x', '-m', 'qwen', '--base-url', 'http://localhost:8000/v1', '--api-key-env', 'KEY']
    const { ended, asked } = start({ args, env: { KEY: 'secret' } })
    await ended
    expect(asked[0]?.model).toEqual({ name: 'qwen', backends: [{ url: 'http://localhost:8000/v1', apiKeyEnv: 'KEY' }] })
  })

  it('read models from a file, with flags in precedence', async () => {
    await using folder = await temporaryRuns()
    const cwd = folder.root
    const judge = { backends: [{ url: 'http://judge/v1' }], maxTries: 2 }
    writeFileSync(join(cwd, 'models.json'), JSON.stringify({ judge, fast: { simulator: { skill: 1 } } }))
    const args = ['x', '-m', 'fast', '--judge', 'judge', '--models', 'models.json', '--rpm', '5', '--sim.skill=0.5']
    const { ended, asked } = start({ args, cwd })
    await ended
    expect(asked[0]).toMatchObject({
      model: { name: 'fast', simulator: { skill: 0.5 }, requestsPerMinute: 5 },
      models: { judge: { name: 'judge', ...judge } },
    })
  })

  it.each([
    [['x'], 'which model?'],
    [['x', '-m', 'sim', '--tokenizer', 'here'], '--tokenizer is for exact tokens; add --exact-tokens'],
    [['x', '-m', 'gpt', '--sim.skill=1'], '--sim.skill is an option of the simulator, but the model is gpt'],
    [['x', '-m', 'gpt', '--agent.turns=2'], '--agent.turns is an option of a built-in agent: name it with --agent'],
    [['x', '-m', 'gpt', '--price.input', '1'], 'give both --price.input and --price.output'],
    [['x', '-m', 'gpt', '--base-url', 'localhost:8000'], '--base-url is a URL such as'],
    [
      ['x', '-m', 'sim', '--sim.skill=1', '--base-url', 'http://localhost:8000/v1'],
      '--sim.skill is an option of the built-in simulator, which has no endpoint',
    ],
    [
      ['x', '-m', 'qwen', '--base-url', 'http://localhost:8000/v1', '--api-key-env', 'NOWHERE'],
      '--api-key-env names NOWHERE, which is not set: set it, or leave out the flag',
    ],
    [['x', '-m', 'sim', '--new', '--resume'], 'give only one of them'],
    [['x', '-m', 'sim', '--resume=a', '--run', 'b'], 'give one name'],
    [['x', '-m', 'sim', '--models', 'missing.json'], 'cannot read missing.json'],
  ])('are refused: %j', async (args, message) => {
    await expect(start({ args }).ended).rejects.toThrow(message)
  })

  it('are refused with the place of an error in the models file', async () => {
    await using folder = await temporaryRuns()
    const cwd = folder.root
    writeFileSync(join(cwd, 'models.json'), JSON.stringify({ a: { maxTries: 'six' } }))
    await expect(start({ args: ['x', '-m', 'a', '--models', 'models.json'], cwd }).ended).rejects.toThrow(
      /models\.json: a\.maxTries: /,
    )
  })
})

describe('millrace eval: output', () => {
  it('on a terminal is a live view, then the results, and the cursor is restored', async () => {
    const evaluation = new FakeEvaluation({ info: { notices: ['continues brisk-otter'] } })
    const { ended, stdout, stderr } = start({ columns: 80, evaluation })
    expect(await ended).toBe(0)
    expect(stdout.plain).toContain('continues brisk-otter')
    expect(stdout.plain).toContain('158/300')
    expect(stdout.plain).toContain('0.812 [0.778, 0.847]   95% interval')
    expect(stdout.text.lastIndexOf('\u001b[?25h')).toBeGreaterThan(stdout.text.lastIndexOf('\u001b[?25l'))
    expect(stderr.text).toBe('')
  })

  it('without a terminal is plain lines without colours', async () => {
    const { ended, stdout } = start({ evaluation: new FakeEvaluation({ info: { resumed: 12 } }) })
    expect(await ended).toBe(0)
    expect(stdout.text).toBe(stdout.plain)
    expect(stdout.lines[0]).toBe('run brisk-otter')
    expect(stdout.lines[1]).toContain('158/300 rollouts')
    expect(stdout.text).toContain('95% interval')
  })

  it('with --quiet is only the results', async () => {
    const { ended, stdout } = start({ args: ['x', '-m', 'sim', '--quiet'], columns: 80 })
    await ended
    expect(stdout.plain).not.toContain('158/300')
    expect(stdout.lines[0]).toContain('arithmetic · sim')
  })

  it('with --json is one object per line: start, rollouts without messages, summary', async () => {
    const evaluation = new FakeEvaluation({
      records: [sampleRecord(), sampleRecord({ id: '0-1' })],
      info: { notices: ['continues brisk-otter'] },
    })
    const { ended, stdout } = start({ args: ['x', '-m', 'sim', '--json'], columns: 80, evaluation })
    expect(await ended).toBe(0)
    const objects = stdout.text
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as Record<string, unknown>)
    expect(objects.map((object) => object['type'])).toEqual(['start', 'rollout', 'rollout', 'summary'])
    expect(objects[0]).toMatchObject({ run: 'brisk-otter', model: 'sim', notices: ['continues brisk-otter'] })
    expect(objects[1]).toMatchObject({ id: '0-0', reward: 1, outcome: 'completed' })
    expect(objects[1]).not.toHaveProperty('messages')
    expect(objects.at(-1)).toMatchObject({ end: 'complete', scored: 300 })
  })
})

describe('millrace eval: end', () => {
  it.each([
    ['every rollout is scored', sampleSummary(), 0],
    ['some have no score', sampleSummary({ scored: 298 }), 3],
    ['tasks are gone', sampleSummary({ state: 'unfinished', missingTasks: 1 }), 3],
    ['the money is spent', sampleSummary({ end: 'max_cost', rollouts: 100, scored: 100 }), 3],
  ])('sets the exit code when %s', async (_, summary, code) => {
    expect(await start({ evaluation: new FakeEvaluation({ summary }) }).ended).toBe(code)
  })

  it.each([
    ['SIGINT', 130, 'Ctrl-C again'],
    ['SIGTERM', 143, 'Ctrl-C again'],
    ['SIGHUP', 129, 'SIGTERM'],
  ])('drains on %s and names the command to continue', async (signal, code, again) => {
    const evaluation = new FakeEvaluation({ waits: true })
    const args = ['./my env.ts', '-m', 'sim', '--new', '-n', '4']
    const { ended, events, stderr, stdout } = start({ args, evaluation })
    await until(() => stdout.text.includes('run brisk-otter'))
    events.emit(signal)
    expect(evaluation.calls).toEqual(['drain'])
    expect(stderr.text).toContain(`Draining: 64 running rollouts may end, no new one starts. ${again} stops them.`)
    evaluation.endDrained()
    expect(await ended).toBe(code)
    expect(stderr.text).toContain(`Continue with:\n  npx millrace eval './my env.ts' -m sim -n 4 --run brisk-otter`)
    expect(events.listenerCount(signal)).toBe(0)
  })

  it('stops at the second signal and leaves a third to the system', async () => {
    const evaluation = new FakeEvaluation({ waits: true })
    const { ended, events, stdout } = start({ evaluation, columns: 80 })
    await until(() => stdout.plain.includes('158/300'))
    events.emit('SIGINT')
    events.emit('SIGINT')
    expect(evaluation.calls).toEqual(['drain', 'stop'])
    // The cursor is back before a third signal could end the process.
    expect(stdout.text.lastIndexOf('\u001b[?25h')).toBeGreaterThan(stdout.text.lastIndexOf('\u001b[?25l'))
    expect(events.listenerCount('SIGINT')).toBe(0)
    expect(await ended).toBe(130)
  })

  it('fails once with the error of a run that could not start', async () => {
    const startError = new MillraceError('model_auth', 'the key was refused; check OPENAI_API_KEY')
    const { ended, stdout, stderr } = start({ evaluation: new FakeEvaluation({ startError }) })
    await expect(ended).rejects.toBe(startError)
    expect(stdout.text + stderr.text).toBe('')
  })

  it('names the command to continue when a run breaks off', async () => {
    const error = new MillraceError('disk_full', 'the disk is full; free some room')
    const { ended, stderr, stdout } = start({ evaluation: new FakeEvaluation({ error }), columns: 80 })
    await expect(ended).rejects.toBe(error)
    expect(stdout.plain + stderr.text).toContain(
      'Continue with:\n  npx millrace eval arithmetic -m sim --run brisk-otter',
    )
    expect(stdout.text.lastIndexOf('\u001b[?25h')).toBeGreaterThan(stdout.text.lastIndexOf('\u001b[?25l'))
  })

  it('stops when its output is closed', async () => {
    const evaluation = new FakeEvaluation({ waits: true })
    const { ended, stdout } = start({ evaluation })
    await until(() => stdout.text.includes('run brisk-otter'))
    stdout.destroy(Object.assign(new Error('write EPIPE'), { code: 'EPIPE' }))
    expect(await ended).toBe(1)
    expect(evaluation.calls).toEqual(['stop'])
  })
})
