import { once } from 'node:events'
import { mkdir, readFile, readdir, writeFile } from 'node:fs/promises'
import { createServer, type AddressInfo } from 'node:net'
import { join } from 'node:path'
import { temporaryRuns } from 'millrace/testing'
import { describe, expect, it } from 'vitest'
import { SimulatorServer } from '../../src/simulator/index.ts'
import { fixture, millrace, objects, startMillrace, type Ended } from '../support/cli/millrace-process.ts'

const stackFrame = /^\s+at .+:\d+:\d+\)?$/m

/** One message with the cause and the next step on stderr, nothing on stdout, no stack. */
function expectRefusal(ended: Ended, code: number, message: RegExp): void {
  expect(ended.stderr).toMatch(message)
  expect(ended.stderr).toMatch(/^error: .+ \[[a-z_]+\]\n$/)
  expect(ended.stderr).not.toMatch(stackFrame)
  expect(ended).toMatchObject({ code, stdout: '' })
}

const evaluation = ['eval', 'arithmetic', '-m', 'sim', '--limit', '2']

describe.concurrent('an invalid command line', () => {
  it.each<[string, RegExp]>([
    ['evla', /unknown command evla; did you mean millrace eval\?/],
    ['helpp', /unknown command helpp; did you mean millrace help\?/],
    ['--verbos', /unknown flag --verbos; millrace --help lists all commands/],
    ['eval', /millrace eval needs an environment: .*see millrace eval --help/],
    ['eval arithmetic', /which model\? Add -m <name>; -m sim is built in/],
    ['eval arithmetic -m sim --modle x', /unknown flag --modle; did you mean --model\?/],
    ['eval arithmetic -m sim more', /unexpected argument "more"; see millrace eval --help/],
    ['eval arithmetic -m sim --limit 0', /--limit is a whole number of at least 1, not 0/],
    ['eval arithmetic -m sim -n 0', /-n is a whole number of at least 1, not 0/],
    ['eval arithmetic -m sim -c -1', /-c is a whole number of at least 1, not -1/],
    ['eval arithmetic -m sim --limit 1.5', /--limit is a whole number of at least 1, not 1\.5/],
    ['eval arithmetic -m sim --limit', /--limit needs a value: --limit <count>/],
    ['eval arithmetic -m sim --timeout banana', /--timeout is a duration such as 90 \(seconds\), .*, not banana/],
    ['eval arithmetic -m sim --temperature hot', /--temperature is a number of at least 0, not hot/],
    ['eval arithmetic -m sim --api soap', /--api is one of chat, responses, messages, not soap/],
    ['eval arithmetic -m sim --json=yes', /--json takes no value; write it alone, or leave it out/],
    ['eval arithmetic -m sim --new --resume', /--new starts a run and --resume continues one; give only one/],
    [
      'eval arithmetic -m x --sim.skill=1',
      /--sim\.skill is an option of the simulator, but the model is x; use -m sim/,
    ],
    ['eval arithmetic -m x --base-url localhost:80', /--base-url is a URL such as http:.*, not localhost:80/],
    ['show', /millrace show needs a run: .*see millrace show --help/],
    ['show a --outcome fine', /--outcome is one of completed, .*, not fine/],
    ['export a --format csv', /--format is one of jsonl, binary, parquet, not csv/],
    ['prune --older-than soon', /--older-than is a duration such as .*, not soon/],
    ['sim --port 99999', /--port is a whole number of at least 0 and at most 65535, not 99999/],
    ['serve arithmetic -m sim --port 99999', /--port is a whole number of at least 0 and at most 65535, not 99999/],
    ['tools serve guess-number --http 70000', /--http is a whole number of at least 0 and at most 65535, not 70000/],
    ['sim --skill 7', /simulator options: skill: expected number to be at most 1/],
  ])('millrace %s', async (line, message) => {
    await using place = await temporaryRuns()
    expectRefusal(await millrace({ cwd: place.root }, ...line.split(' ')), 2, message)
  })

  it.each<[string, RegExp]>([
    [
      '--env.dificulty=3',
      /arithmetic has no option "dificulty"; did you mean "difficulty"\? It takes: count, difficulty/,
    ],
    ['--env.difficulty=lots', /the options of arithmetic do not fit: difficulty: /],
    ['--sim.skil=1', /simulator options: `skil` is not known; did you mean `skill`\?/],
    ['--run=a/b', /"a\/b" cannot be the name of a run; use up to 100 letters, digits, dots, dashes and underscores/],
    ['--max-rollout-cost=0', /limits do not fit: maxCostUsd/],
  ])('eval with %s, which only the environment or the run can refuse', async (flag, message) => {
    await using place = await temporaryRuns()
    expectRefusal(await millrace({ cwd: place.root }, ...evaluation, '--json', flag), 2, message)
    expect(await readdir(place.root)).toEqual([])
  })
})

describe.concurrent('an environment that cannot be used', () => {
  const eval_ = (cwd: string, ...words: string[]): Promise<Ended> =>
    millrace({ cwd }, 'eval', ...words, '-m', 'sim', '--json')

  it('is reported with a suggestion if its file does not exist', async () => {
    await using place = await temporaryRuns()
    const cwd = place.root
    await writeFile(join(cwd, 'environment.ts'), '')
    const cases: [string, RegExp][] = [
      ['./enviroment.ts', /there is no file .*\/enviroment\.ts; did you mean environment\.ts\?/],
      ['./nowhere/environment.ts', /there is no file .*, nor a folder .*\/nowhere; relative paths start from/],
      ['arithmetik', /there is no environment "arithmetik": .* Did you mean arithmetic\? Examples: arithmetic, /],
    ]
    for (const [environment, message] of cases) expectRefusal(await eval_(cwd, environment), 1, message)
  })

  it('is reported without a stack if it throws while loading; --debug adds the stack', async () => {
    await using place = await temporaryRuns()
    const file = fixture('throws-on-load.ts')
    const message =
      /throws-on-load\.ts could not be loaded: this environment needs a moon \(at .*throws-on-load\.ts:1\)/
    expectRefusal(await eval_(place.root, file), 1, message)
    const debugged = await eval_(place.root, file, '--debug')
    expect(debugged).toMatchObject({ code: 1, stdout: '' })
    expect(debugged.stderr).toMatch(message)
    expect(debugged.stderr).toMatch(/at file:.*throws-on-load\.ts:1:\d+$/m)
  })

  it('is reported if the module exports no environment or the task source is empty', async () => {
    await using place = await temporaryRuns()
    const cwd = place.root
    await writeFile(join(cwd, 'other.mjs'), 'export const size = 3\n')
    expectRefusal(await eval_(cwd, './other.mjs'), 1, /exports no environment: write `export default defineEnvironment/)
    const missing = await eval_(cwd, fixture('rows.ts'), '--env.file=./rows.jsonl')
    expect(missing.code).toBe(1)
    expect(missing.stderr).toMatch(/^error: there is no file .*\/rows\.jsonl; .* \[file_not_found\]$/m)
    expect(missing.stderr).not.toMatch(stackFrame)
    await writeFile(join(cwd, 'rows.jsonl'), '\n')
    const empty = await eval_(cwd, fixture('rows.ts'), '--env.file=./rows.jsonl')
    expectRefusal(empty, 1, /rows has no tasks: its source \(rows\.jsonl\) is empty\. Check the result of `tasks`/)
    expect(await readdir(join(cwd, 'runs'))).toEqual([])
  })
})

it('an invalid task row fails its own rollouts with the reason, and the run continues', async () => {
  await using place = await temporaryRuns()
  const cwd = place.root
  const rows = Array.from({ length: 7_400 }, (_, index) => JSON.stringify({ left: index, right: 1 }))
  rows[7_311] = JSON.stringify({ left: 7_311, right: 'one' })
  rows[7_319] = '{"left": 7319, '
  await writeFile(join(cwd, 'rows.jsonl'), rows.join('\n'))
  const words = [
    'eval',
    fixture('rows.ts'),
    '--env.file=rows.jsonl',
    '-m',
    'sim',
    '-n',
    '2',
    '-c',
    '256',
    '--run',
    'it',
  ]
  const ended = await millrace({ cwd }, ...words)
  expect(ended.code, ended.stderr).toBe(3)
  expect(ended.stdout).toMatch(/over +14,796 of 14,800 rollouts scored · 7,400 tasks/)
  expect(ended.stdout).toMatch(/env_error +4 +<0\.1% +not scored/)
  expect(ended.stdout).toContain('rows.jsonl line 7312: right: ')
  expect(ended.stderr).toMatch(
    /^4 rollouts ended without a score\. With the cause corrected, run them again:\n {2}(?:npx )?millrace eval .*\n$/,
  )
  const listed = await millrace({ cwd }, 'show', 'it', '--outcome', 'env_error', '--json')
  expect(objects(listed.stdout)).toMatchObject([
    {
      id: '7311-0',
      reward: null,
      error: { code: 'task_invalid', message: expect.stringContaining('line 7312: right: ') },
    },
    { id: '7311-1' },
    { id: '7319-0', error: { code: 'task_invalid', message: expect.stringMatching(/line 7320: not valid JSON/) } },
    { id: '7319-1' },
  ])
})

describe.concurrent('a model that cannot be used', () => {
  const against = (cwd: string, url: string, options: { model?: string; key?: string } = {}): Promise<Ended> => {
    const env: Record<string, string> = options.key === undefined ? {} : { OPENAI_API_KEY: options.key }
    return millrace(
      { cwd, env },
      'eval',
      'arithmetic',
      '-m',
      options.model ?? 'good',
      '--base-url',
      url,
      '--json',
      '--quiet',
    )
  }

  it('is reported if the server does not list it, or if its key is wrong or missing', async () => {
    await using place = await temporaryRuns()
    await using server = await SimulatorServer.start({ apiKey: 'sesame', models: ['good', 'better'] })
    const cwd = place.root
    const unknown = await against(cwd, server.url, { model: 'goood', key: 'sesame' })
    expectRefusal(
      unknown,
      1,
      /Did you mean "good"\? .*answered 404: .*The server offers: better, good\. \[model_not_found\]/,
    )
    const wrong = await against(cwd, server.url, { key: 'tahini' })
    expectRefusal(wrong, 1, /answered 401: .* Check the key in OPENAI_API_KEY, .* \[model_auth\]/)
    expect(wrong.stderr).not.toContain('tahini')
    expectRefusal(await against(cwd, server.url), 1, /answered 401: the key is missing or wrong/)
    // Nothing was spent, and nothing of it is left.
    expect(await readdir(join(cwd, 'runs'))).toEqual([])
  })

  it('is refused if it needs a key and none is set', async () => {
    await using place = await temporaryRuns()
    const ended = await millrace({ cwd: place.root }, 'eval', 'arithmetic', '-m', 'gpt-4.1-mini', '--json')
    expectRefusal(
      ended,
      1,
      /OPENAI_API_KEY is not set\. Set OPENAI_API_KEY, .* or use the built-in model sim, which needs no key/,
    )
  })

  it('is refused before any request if its key variable is not set', async () => {
    await using place = await temporaryRuns()
    const cwd = place.root
    const named = { backends: [{ url: 'http://127.0.0.1:9/v1', apiKeyEnv: 'NAMED_KEY' }] }
    const models = { policy: { simulator: {} }, usual: { upstreamName: 'gpt-4.1-mini' }, named }
    await writeFile(join(cwd, 'models.json'), JSON.stringify(models))
    const words = ['eval', 'arithmetic', '--limit', '2', '--models', 'models.json', '-m', 'policy']
    expect(await millrace({ cwd }, ...words)).toMatchObject({ code: 0 })
    expectRefusal(await millrace({ cwd }, ...words, '--judge', 'usual'), 1, /model usual .* OPENAI_API_KEY is not set/)
    expectRefusal(
      await millrace({ cwd }, ...words, '--judge', 'named'),
      2,
      /model named: .* names NAMED_KEY, which is not/,
    )
  })

  it('is reported if the server cannot be reached', async () => {
    await using place = await temporaryRuns()
    // A port that was free a moment ago.
    const probe = createServer().listen(0, '127.0.0.1')
    await once(probe, 'listening')
    const { port } = probe.address() as AddressInfo
    probe.close()
    const ended = await against(place.root, `http://127.0.0.1:${port}/v1`)
    expectRefusal(ended, 1, /cannot be reached: connect ECONNREFUSED .* Is the server running, and is the port right\?/)
  })

  it('is refused with a cost limit if its price is unknown', async () => {
    await using place = await temporaryRuns()
    const words = ['eval', 'arithmetic', '-m', 'mine', '--base-url', 'http://127.0.0.1:9/v1', '--max-cost', '5']
    const ended = await millrace({ cwd: place.root }, ...words)
    expectRefusal(
      ended,
      2,
      /a cost limit needs prices, but the price of mine is unknown; set it with --price\.input and/,
    )
    // Those flags are about the policy.
    await writeFile(
      join(place.root, 'models.json'),
      '{ "other": { "backends": [{ "url": "http://127.0.0.1:9/v1" }] } }',
    )
    const judge = ['--price.input=1', '--price.output=1', '--models', 'models.json', '--judge', 'other']
    const judged = await millrace({ cwd: place.root }, ...words, ...judge)
    expectRefusal(judged, 2, /the price of other is unknown; set it with price in its config, or leave out the limit/)
  })
})

describe.concurrent('a run folder that cannot be used', () => {
  it('is refused below a file or where no folder can be created', async () => {
    await using place = await temporaryRuns()
    const cwd = place.root
    await writeFile(join(cwd, 'file'), '')
    const below = await millrace({ cwd }, ...evaluation, '--runs', 'file/runs')
    expectRefusal(
      below,
      1,
      /\/file\/runs cannot hold runs: .*\/file is a file, not a folder; choose another with --runs/,
    )
    expectRefusal(
      await millrace({ cwd }, 'list', '--runs', 'file'),
      1,
      /choose another with --runs \[folder_unwritable\]/,
    )
    if (process.platform !== 'linux') return
    const words = [...evaluation, '--runs', '/proc/runs']
    expectRefusal(
      await millrace({ cwd }, ...words),
      1,
      /cannot write to \/proc\/runs\/.* or choose another folder with --runs/,
    )
  })

  it('is refused if it belongs to a run with another configuration, or if its name is taken', async () => {
    await using place = await temporaryRuns()
    const cwd = place.root
    const words = [...evaluation, '--run', 'it']
    expect(await millrace({ cwd }, ...words)).toMatchObject({ code: 0 })
    const other = await millrace({ cwd }, ...words, '-n', '3', '--seed', '5')
    expectRefusal(
      other,
      1,
      /run it was started with other settings: attempts 1, now 3; seed not set, now 5\. Repeat those .* \[run_mismatch\]/,
    )
    expectRefusal(await millrace({ cwd }, ...words, '--new'), 1, /a run named it exists already; choose another name/)
    const missing = await millrace({ cwd }, ...evaluation, '--resume', 'that')
    expectRefusal(missing, 1, /there is no run named that in runs to continue; `millrace list` shows all runs/)
  })

  it('is refused while another process uses it', async () => {
    await using place = await temporaryRuns()
    const cwd = place.root
    const words = [...evaluation, '--run', 'it', '--sim.ttftMs=1800000', '--no-preflight', '--json']
    await using running = startMillrace({ cwd }, ...words)
    await running.shows('stdout', '"type":"start"')
    const second = await millrace({ cwd }, ...words)
    expectRefusal(
      second,
      1,
      /is in use by process \d+ \(since .*\); wait for it or stop it, or start another run with --run/,
    )
    expect(second.stderr).toContain(`process ${running.process.pid} `)
  })

  it('is refused if its files are damaged or it is not a run', async () => {
    await using place = await temporaryRuns()
    const cwd = place.root
    await millrace({ cwd }, ...evaluation, '--run', 'it')
    const file = join(cwd, 'runs', 'it', 'run.json')
    const whole = await readFile(file, 'utf8')
    await writeFile(file, whole.slice(0, 100))
    const broken =
      /it\/run\.json is not JSON; restore it, or start another run with --run <name> \(run\.name\) \[store_failed\]/
    expectRefusal(await millrace({ cwd }, ...evaluation, '--run', 'it'), 1, broken)
    expectRefusal(await millrace({ cwd }, 'show', 'it'), 1, broken)
    await writeFile(file, whole)
    await writeFile(
      join(cwd, 'runs', 'it', 'journal.sqlite'),
      'not a database, but long enough to be looked at'.repeat(99),
    )
    const records = /the records of run it cannot be read: .*journal\.sqlite: file is not a database; restore that file/
    expectRefusal(await millrace({ cwd }, 'show', 'it'), 1, records)
    expectRefusal(await millrace({ cwd }, 'export', 'it', '-o', 'out.jsonl'), 1, records)
    await mkdir(join(cwd, 'runs', 'photos'))
    await writeFile(join(cwd, 'runs', 'photos', 'cat.jpg'), '')
    const foreign = await millrace({ cwd }, ...evaluation, '--run', 'photos')
    expectRefusal(foreign, 1, /photos is not a run: it holds "cat\.jpg"; choose another name with --run/)
  })
})
