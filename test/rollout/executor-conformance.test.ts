import { join } from 'node:path'
import {
  evaluate,
  RunReader,
  SimulatorServer,
  type Environment,
  type EvaluateOptions,
  type RolloutRecord,
  type Summary,
} from 'millrace'
import { temporaryRuns } from 'millrace/testing'
import { describe, expect, test } from 'vitest'

const fixture = (name: string): string => join(import.meta.dirname, '../fixtures', `${name}.ts`)

async function run(options: EvaluateOptions) {
  const evaluation = evaluate(options)
  const records = await Array.fromAsync(evaluation)
  records.sort((one, other) => one.id.localeCompare(other.id))
  return { records, summary: await evaluation.summary() }
}

/** Without what depends on the clock. */
const timeless = ({ timing: _timing, ...rest }: RolloutRecord) => rest

/** Without that, and without what names the run; to 12 digits, because sums of fractions depend on their order. */
function figuresOf({ run: _run, folder: _folder, wallMs: _wallMs, perSecond: _perSecond, ...rest }: Summary): unknown {
  const { durations: _durations, ...figures } = rest
  const rounded = (_: string, value: unknown) => (typeof value === 'number' ? Number(value.toPrecision(12)) : value)
  return JSON.parse(JSON.stringify(figures, rounded))
}

/** A place to run in: how it is asked for, and the module of an environment that asks for the rest of it. */
const places = [
  { place: 'inline', options: {}, module: (name: string) => name },
  { place: 'threads', options: { workers: 2 }, module: (name: string) => name },
  { place: 'processes', options: { workers: 2 }, module: (name: string) => isolated[name] ?? name },
] as const

/** The same environments, asking for processes. */
const isolated: Readonly<Record<string, string>> = {
  [fixture('changing')]: fixture('workers/changing'),
  [fixture('counting')]: fixture('workers/counting'),
  [fixture('failing')]: fixture('workers/failing'),
  arithmetic: fixture('workers/arithmetic'),
  'diverse-primes': fixture('workers/primes'),
}

describe.each(places)('in $place', ({ options: where, module }) => {
  test('runs rollouts to their end and journals every node', async () => {
    await using runs = await temporaryRuns()
    const { records, summary } = await run({
      environment: module(fixture('counting')),
      options: { count: 30 },
      model: { name: 'sim', simulator: { skill: 0.7 } },
      seed: 5,
      attempts: 2,
      captureTokens: true,
      ...where,
      run: { root: runs.root, name: 'conforming' },
    })
    expect(records).toHaveLength(60)
    expect(summary.tries).toEqual({ calls: summary.usage.calls, tries: summary.usage.calls })
    using reader = RunReader.open(join(runs.root, 'conforming'))
    for (const record of records) {
      const nodes = reader.nodes(record.id, 1)
      expect(nodes.map(({ message }) => message)).toEqual(record.messages)
      for (const { sampled, tokens } of nodes) {
        if (sampled) expect(tokens?.ids.length).toBe(tokens?.logprobs.length)
      }
    }
    expect(reader.integrity()).toEqual([])
  })

  test('reports why rollouts wait for an unavailable backend', async () => {
    await using runs = await temporaryRuns()
    const evaluation = evaluate({
      environment: module(fixture('counting')),
      options: { count: 10 },
      // Nobody listens there.
      model: { name: 'm', backends: [{ url: 'http://127.0.0.1:9/v1' }] },
      preflight: false,
      ...where,
      run: { root: runs.root },
    })
    const records = Array.fromAsync(evaluation)
    await expect
      .poll(() => evaluation.progress().models[0]?.parkedBecause, { timeout: 20_000 })
      .toMatch(/^http:\/\/127\.0\.0\.1:9\/v1\/.* cannot be reached: .*ECONNREFUSED/)
    evaluation.stop()
    await records
    expect((await evaluation.summary()).end).toBe('stopped')
  })

  test('scores groups', async () => {
    await using runs = await temporaryRuns()
    const { summary } = await run({
      environment: module('diverse-primes'),
      model: 'sim',
      seed: 5,
      attempts: 4,
      limit: 5,
      ...where,
      run: { root: runs.root },
    })
    expect(summary.scored).toBe(20)
    expect(summary.components['distinct']?.rollouts).toBe(20)
  })

  test('changes that a rollout makes to its task or options are invisible to other rollouts', async () => {
    await using runs = await temporaryRuns()
    const { records } = await run({
      environment: module(fixture('changing')),
      model: 'sim',
      attempts: 8,
      ...where,
      run: { root: runs.root },
    })
    const found = new Set(records.map(({ rewards, metrics }) => JSON.stringify({ rewards, metrics })))
    const score = (of: number, weight = 1) => ({ score: of, weight })
    expect([...found].map((each) => JSON.parse(each))).toEqual([
      { rewards: { items: score(6), bag: score(3), group: score(9, 0) }, metrics: { year: 2026 } },
    ])
  })

  test('a failing environment is recorded as data, with the function and its position', async () => {
    await using runs = await temporaryRuns()
    const { records, summary } = await run({
      environment: module(fixture('failing')),
      model: 'sim',
      ...where,
      run: { root: runs.root },
    })
    const shown = records.map(({ outcome, error }) => [outcome, error?.code, error?.message.replace(/\d+/, 'n')])
    const at = 'at test/fixtures/failing.ts:n'
    expect(shown).toEqual([
      ['env_error', 'setup_failed', `setup threw Error ${at}: no room`],
      ['env_error', 'setup_failed', `prompt threw RangeError ${at}: no words`],
      ['agent_error', 'agent_failed', `agent threw Error ${at}: lost my way`],
      ['agent_error', 'agent_failed', `update threw Error ${at}: no news`],
      ['completed', undefined, undefined],
      ['reward_error', 'reward_failed', `reward "fair" threw Error ${at}: no opinion`],
      ['env_error', 'teardown_failed', `teardown threw Error ${at}: no broom`],
      ['completed', undefined, undefined],
    ])
    const kind = expect.stringMatching(/^TypeError at test\/fixtures\/failing\.ts:\d+$/)
    const fault = { tool: 'calculator', kind, message: 'no buttons', calls: 3 }
    expect(records.flatMap(({ toolFaults = [] }) => toolFaults)).toEqual([fault])
    expect(summary.toolFaults).toEqual([fault])
  })

  test('stopping aborts requests to the backend, and the run can be resumed', async () => {
    await using runs = await temporaryRuns()
    await using server = await SimulatorServer.start({ 'faults.hang': 1 })
    const stop = new AbortController()
    const options = {
      environment: module(fixture('counting')),
      options: { count: 50 },
      model: { name: 'hung', backends: [{ url: server.url }] },
      concurrency: 50,
      preflight: false,
      ...where,
      run: { root: runs.root, name: 'stopped' },
    } satisfies EvaluateOptions
    const evaluation = evaluate({ ...options, signal: stop.signal })
    const summary = evaluation.summary()
    await expect.poll(() => server.stats.inFlight).toBe(50)
    stop.abort()
    expect(await summary).toMatchObject({ end: 'stopped', rollouts: 0 })
    await expect.poll(() => server.stats.aborted).toBe(50)
    server.simulator.change({ 'faults.hang': 0 })
    const { records } = await run(options)
    expect(records).toHaveLength(50)
    expect(new Set(records.map(({ outcome }) => outcome))).toEqual(new Set(['completed']))
  })

  test('an environment that cannot be loaded is refused before anything runs', async () => {
    await using runs = await temporaryRuns()
    await expect(
      run({ environment: fixture('throws-on-load'), model: 'sim', ...where, run: { root: runs.root } }),
    ).rejects.toMatchObject({ code: 'env_load_failed' })
  })
})

test('every place gives the same results and the same summary', async () => {
  await using runs = await temporaryRuns()
  const all = await Promise.all(
    places.map(({ place, options, module }) =>
      run({
        environment: module('arithmetic'),
        model: { name: 'sim', simulator: { skill: 0.6, sloppiness: 0.3 } },
        seed: 11,
        attempts: 3,
        limit: 20,
        ...options,
        run: { root: runs.root, name: place },
      }),
    ),
  )
  const [inline, threads, processes] = all.map(({ records, summary }) => {
    return { records: records.map(timeless), summary: figuresOf(summary) }
  })
  expect(inline?.records).toHaveLength(60)
  expect(threads).toEqual(inline)
  expect(processes).toEqual(inline)
})

test.each([
  ['an environment given as an object', (environment: Environment) => ({ environment })],
  ['backends of a script', () => ({ environment: fixture('counting'), backends: {} })],
])('%s works only on the main thread, and the error says so', async (_, given) => {
  await using runs = await temporaryRuns()
  const { default: environment } = await import('../fixtures/counting.ts')
  await expect(run({ ...given(environment), model: 'sim', workers: 2, run: { root: runs.root } })).rejects.toThrow(
    /give the environment as a module/,
  )
})

test.each([0, 1.5, -1])('%d workers are refused as invalid', async (workers) => {
  await using runs = await temporaryRuns()
  const options = { environment: fixture('counting'), model: 'sim', workers, run: { root: runs.root } }
  await expect(run(options)).rejects.toThrow(/workers: expected/)
})
