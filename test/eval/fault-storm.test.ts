import { SimulatorServer, evaluate, type EvaluateOptions, type RolloutRecord, type Summary } from 'millrace'
import { temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import type { ErrorCode } from '../../src/errors/index.ts'
import { modelCalls } from '../../src/inference/index.ts'
import { outcomes } from '../../src/schema/index.ts'
import counting from '../fixtures/counting.ts'

const skill = 0.8
const storm = { 'faults.rateLimit': 0.2, 'faults.serverError': 0.1, 'faults.cut': 0.05, 'faults.hang': 0.02 }
const maxTries = 8
const retries = 2

async function run(
  model: EvaluateOptions['model'],
  count: number,
): Promise<{ records: RolloutRecord[]; summary: Summary }> {
  await using runs = await temporaryRuns()
  const evaluation = evaluate({
    environment: counting,
    options: { count },
    model,
    seed: 3,
    concurrency: 256,
    retries,
    preflight: false,
    run: { root: runs.root },
  })
  const records = await Array.fromAsync(evaluation)
  return { records, summary: await evaluation.summary() }
}

test('429s, 500s, cut streams and hangs cost tries but no rollouts, and do not change the score', async () => {
  const count = 5_000
  const price = { input: 0, output: 0 }
  // What the model says depends on what it is asked, not on the way there.
  const calm = await run({ name: 'policy', simulator: { skill }, price }, count)
  await using server = await SimulatorServer.start({ skill, retryAfterMs: 5, ...storm })
  const overHttp = { backends: [{ url: server.url }], stream: true, maxTries, requestTimeoutMs: 1_500 }
  const failures: ErrorCode[] = []
  using _listening = modelCalls.subscribe((event) => {
    if (event.kind === 'try-failed') failures.push(event.error.code)
  })
  const stormy = await run({ name: 'policy', ...overHttp, price }, count)
  expect(stormy.records).toHaveLength(count)
  expect(new Set(stormy.records.map(({ id }) => id)).size).toBe(count)

  // The retry budget: no call is tried more than maxTries times, no rollout attempted more than retries + 1 times.
  const { calls, tries } = stormy.summary.tries
  expect(tries).toBe(server.stats.requests)
  expect(tries).toBeLessThanOrEqual(calls * maxTries)
  expect(Math.max(...stormy.records.map(({ attempt }) => attempt))).toBeLessThanOrEqual(retries + 1)
  // No storm of retries answers it: there is one more try for one that failed, and no other.
  expect(tries).toBeLessThanOrEqual(calls + failures.length)
  // It was the storm that was asked for. Hangs show as timeouts, as does whatever a slow machine does not answer in time.
  const faults = failures.filter((code) => code !== 'model_timeout').length / tries
  expect(faults).toBeGreaterThan(0.3)
  expect(faults).toBeLessThan(0.4)
  expect(failures.length / tries - faults).toBeGreaterThan(0.01)

  // Nothing hangs past its deadline: a call has maxTries times its timeout plus its waits, and all rollouts have ended.
  const scored = stormy.records.filter(({ outcome }) => outcomes[outcome].scored)
  expect(scored.length).toBeGreaterThanOrEqual(count * 0.99)
  for (const { outcome, reward } of stormy.records) {
    if (!outcomes[outcome].scored) expect(reward).toBeNull()
  }

  const quiet = calm.summary.score
  const rough = stormy.summary.score
  // It is neither always right nor always wrong, so that a score could bend.
  expect(quiet?.mean).toBeGreaterThan(0.7)
  expect(quiet?.mean).toBeLessThan(0.9)
  expect(rough?.mean).toBeGreaterThanOrEqual(quiet?.low ?? NaN)
  expect(rough?.mean).toBeLessThanOrEqual(quiet?.high ?? NaN)
})

test('a backend that answers 503 for some time delays rollouts but fails none', async () => {
  await using server = await SimulatorServer.start({ ttftMs: 5 })
  await using runs = await temporaryRuns()
  const count = 400
  const evaluation = evaluate({
    environment: counting,
    options: { count },
    model: { name: 'sim', backends: [{ url: server.url }], maxTries: 4, price: { input: 0, output: 0 } },
    seed: 1,
    concurrency: 100,
    retries: 0,
    // Less than the outage: waiting for a parked backend is not working time. More than a machine that is busy with other
    // tests takes for a turn.
    limits: { timeoutMs: 4_000 },
    run: { root: runs.root },
  })
  let ended = 0
  let outage: NodeJS.Timeout | undefined
  for await (const record of evaluation) {
    expect(record).toMatchObject({ outcome: 'completed', attempt: 1, reward: 1 })
    ended += 1
    if (ended === 50) {
      server.simulator.setOverload(true)
      // Five minutes, scaled down: several times what back-off alone would outlast.
      outage = setTimeout(() => server.simulator.setOverload(false), 7_000)
    }
  }
  clearTimeout(outage)
  expect(ended).toBe(count)
  const { calls, tries } = (await evaluation.summary()).tries
  // One probe at a time instead of a hundred requests knocking: what failed is the in-flight ones, once, and the probes.
  expect(tries).toBeLessThanOrEqual(calls * 1.2 + 100)
})
