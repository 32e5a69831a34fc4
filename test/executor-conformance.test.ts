import { join } from 'node:path'
import { evaluate, RunReader, SimulatorServer, type EvaluateOptions, type RolloutRecord } from 'millrace'
import { temporaryRuns } from 'millrace/testing'
import { describe, expect, test, vi } from 'vitest'

const fixture = (name: string): string => join(import.meta.dirname, 'fixtures', `${name}.ts`)

async function run(options: EvaluateOptions) {
  const evaluation = evaluate(options)
  const records = await Array.fromAsync(evaluation)
  records.sort((one, other) => one.id.localeCompare(other.id))
  return { records, summary: await evaluation.summary() }
}

/** Without what depends on the clock. */
const timeless = ({ timing: _timing, ...rest }: RolloutRecord) => rest

describe.each(['inline', 'thread'] as const)('the %s executor', (executor) => {
  test('runs rollouts to their end and journals every node', async () => {
    await using runs = await temporaryRuns()
    const { records, summary } = await run({
      environment: fixture('counting'),
      options: { count: 30 },
      model: { name: 'sim', simulator: { skill: 0.7 } },
      seed: 5,
      attempts: 2,
      captureTokens: true,
      executor,
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

  test('scores groups', async () => {
    await using runs = await temporaryRuns()
    const { summary } = await run({
      environment: 'diverse-primes',
      model: 'sim',
      seed: 5,
      attempts: 4,
      limit: 5,
      executor,
      run: { root: runs.root },
    })
    expect(summary.scored).toBe(20)
    expect(summary.components['distinct']?.rollouts).toBe(20)
  })

  test('a failing environment is data', async () => {
    await using runs = await temporaryRuns()
    const { records } = await run({
      environment: fixture('failing'),
      model: 'sim',
      executor,
      run: { root: runs.root },
    })
    expect(records.map(({ outcome, error }) => [outcome, error?.code])).toEqual([
      ['env_error', 'setup_failed'],
      ['agent_error', 'agent_failed'],
      ['reward_error', 'reward_failed'],
      ['completed', undefined],
    ])
  })

  test('stopping reaches the backend, and resuming goes on', async () => {
    await using runs = await temporaryRuns()
    await using server = await SimulatorServer.start({ 'faults.hang': 1 })
    const stop = new AbortController()
    const options = {
      environment: fixture('counting'),
      options: { count: 50 },
      model: { name: 'hung', backends: [{ url: server.url }] },
      concurrency: 50,
      preflight: false,
      executor,
      run: { root: runs.root, name: 'stopped' },
    } satisfies EvaluateOptions
    const evaluation = evaluate({ ...options, signal: stop.signal })
    const summary = evaluation.summary()
    await vi.waitFor(() => expect(server.stats.inFlight).toBe(50), { timeout: 20_000 })
    stop.abort()
    expect(await summary).toMatchObject({ end: 'stopped', rollouts: 0 })
    await vi.waitFor(() => expect(server.stats.aborted).toBe(50), { timeout: 20_000 })
    server.simulator.change({ 'faults.hang': 0 })
    const { records } = await run(options)
    expect(records).toHaveLength(50)
    expect(new Set(records.map(({ outcome }) => outcome))).toEqual(new Set(['completed']))
  })

  test('an environment that cannot be loaded is refused before anything runs', async () => {
    await using runs = await temporaryRuns()
    await expect(
      run({ environment: fixture('throws-on-load'), model: 'sim', executor, run: { root: runs.root } }),
    ).rejects.toMatchObject({ code: 'env_load_failed' })
  })
})

test('both executors come to the same results', async () => {
  await using runs = await temporaryRuns()
  const both = await Promise.all(
    (['inline', 'thread'] as const).map((executor) =>
      run({
        environment: 'arithmetic',
        model: { name: 'sim', simulator: { skill: 0.6, sloppiness: 0.3 } },
        seed: 11,
        attempts: 3,
        limit: 20,
        executor,
        run: { root: runs.root, name: executor },
      }),
    ),
  )
  expect(both[0]?.records.map(timeless)).toEqual(both[1]?.records.map(timeless))
})

test('an environment given as an object runs inline only, and says so', async () => {
  await using runs = await temporaryRuns()
  const { default: environment } = await import('./fixtures/counting.ts')
  await expect(run({ environment, model: 'sim', executor: 'thread', run: { root: runs.root } })).rejects.toThrow(
    /give the environment as a module/,
  )
})
