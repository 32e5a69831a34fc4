import assert from 'node:assert/strict'
import { join } from 'node:path'
import { setTimeout as wait } from 'node:timers/promises'
import { median, table } from '../../../bench/shared/benchmark.ts'
import type { MockCounts } from '../../../bench/shared/mock-model.ts'
import { cpuMsOf } from '../../../bench/shared/process-usage.ts'
import { say } from '../part.ts'
import { agents, type GymBench, row } from './gym-bench.ts'

/** What one agent of NeMo Gym needs, and nothing else of it. */
const comparedServers = [agents.theirs, 'counter', 'policy_model'] as const
const costRollouts = 500
const costRounds = 5
const warmUpRounds = 4
const atOnce = 32
const leastCostRatio = 15
const abandonedRuns = 20
const collectedRows = 1_000
/** One row in so many cannot be run. */
const badEvery = 50
/** More than a double has digits for. */
const largeInteger = '9007199254740993'

/** What is compared: the same rows through NeMo Gym's servers and through ours. */
export class GymCases {
  readonly #bench: GymBench

  constructor(bench: GymBench) {
    this.#bench = bench
  }

  /** CPU of all servers of an agent for one rollout of two turns and one tool, driven by NeMo Gym's collector. */
  async cost(): Promise<string> {
    await using millrace = await this.#bench.serve()
    const rows = Array.from({ length: costRollouts }, (_, index) => row('3', `${index + 1}`, `${index + 4}`))
    const input = await this.#bench.write('cost.jsonl', rows)
    const measured: Record<'theirs' | 'ours', number[]> = { theirs: [], ours: [] }
    const parts: Record<string, number[]> = {}
    const run = async (head: string, agent: string): Promise<void> => {
      const output = join(this.#bench.folder, 'cost-results.jsonl')
      const { rewarded } = await this.#bench.gym.collect({ head, agent, input, output, atOnce, aggregates: false })
      assert.equal(rewarded, costRollouts, `rollouts of ${agent} with the reward 1`)
    }
    // Millrace's process is new, as the others are not: its first rollouts run in code that is not compiled yet.
    for (let round = 0; round < warmUpRounds; round += 1) await run(millrace.head, agents.ours)
    await run(this.#bench.servers.head, agents.theirs)
    for (let round = 0; round < costRounds; round += 1) {
      const before = this.#bench.servers.cpuMs(comparedServers)
      await run(this.#bench.servers.head, agents.theirs)
      const after = this.#bench.servers.cpuMs(comparedServers)
      const used = Object.entries(after).map(([name, ms]) => [name, (ms - (before[name] ?? 0)) / costRollouts] as const)
      const oursBefore = cpuMsOf(millrace.pid)
      await run(millrace.head, agents.ours)
      const oursUsed = (cpuMsOf(millrace.pid) - oursBefore) / costRollouts
      for (const [name, ms] of [...used, ['Millrace', oursUsed] as const]) (parts[name] ??= []).push(ms)
      measured.theirs.push(used.reduce((sum, [, ms]) => sum + ms, 0))
      measured.ours.push(oursUsed)
    }
    const rowsShown = Object.entries(parts).map(([name, values]) => [name, median(values).toFixed(3)])
    for (const line of table([['server', 'CPU ms/rollout'], ...rowsShown])) say(`          ${line}`)
    const [there, here] = [median(measured.theirs), median(measured.ours)]
    const ratio = there / here
    const text = `${there.toFixed(2)} ms of CPU there, ${here.toFixed(3)} ms here: ${ratio.toFixed(1)} times less`
    assert.ok(ratio >= leastCostRatio, `${text}; at least ${leastCostRatio} times are required`)
    return text
  }

  /** NeMo Gym's collector gets a result for every row, also for those that cannot be run. */
  async collection(): Promise<string> {
    await using millrace = await this.#bench.serve()
    const isBad = (index: number): boolean => index % badEvery === 7
    const rows = Array.from({ length: collectedRows }, (_, index) => {
      const good = row('3', `${index + 1}`, `${index + 4}`)
      if (!isBad(index)) return good
      // Two kinds of mistakes: a field of the task, and a parameter that does not exist.
      return index % (2 * badEvery) === 7 ? row('"three"', '1', '4') : good.replace('{"input"', '{"no_such":1,"input"')
    })
    const input = await this.#bench.write('collection.jsonl', rows)
    const output = join(this.#bench.folder, 'collection-results.jsonl')
    const found = await this.#bench.gym.collect({ head: millrace.head, agent: agents.ours, input, output, atOnce })
    const bad = rows.filter((_, index) => isBad(index)).length
    const expected = { results: collectedRows, rewarded: collectedRows - bad, failed: bad }
    assert.partialDeepStrictEqual(found, expected)
    return `${found.results} results of ${collectedRows} rows, ${found.failed} of them failures, ${found.rewarded} with the reward 1`
  }

  /** What a client that leaves in the middle of the first model call still costs. */
  async abandoned(): Promise<string> {
    await using millrace = await this.#bench.serve()
    const there = await this.#abandon(this.#bench.servers.url(agents.theirs))
    const here = await this.#abandon(`http://${millrace.head}`)
    assert.deepEqual(here, { requests: abandonedRuns, abandoned: abandonedRuns })
    return `of ${abandonedRuns} abandoned runs, ${here.abandoned} model calls were cut here and ${there.abandoned} there, and the model was asked ${here.requests} times here and ${there.requests} times there`
  }

  /** A tool in JavaScript has no such number, and says so to the model: nothing is rounded. */
  async largeIntegers(): Promise<string> {
    await using millrace = await this.#bench.serve()
    const asked = row('0', largeInteger, largeInteger)
    const there = await this.#bench.run(this.#bench.servers.url(agents.theirs), asked)
    const here = await this.#bench.run(`http://${millrace.head}`, asked)
    for (const [side, text] of Object.entries({ there, here })) {
      assert.match(text, new RegExp(`count\\\\":\\s*${largeInteger}`), `the argument of the call ${side}: ${text}`)
      assert.match(text, /"reward":[01]\.0[,}]/, `the reward ${side}: ${text}`)
    }
    assert.match(there, /"reward":1\.0/, `the counter there: ${there}`)
    assert.match(here, new RegExp(`"expected_count":${largeInteger}[,}]`), `the row here: ${here}`)
    assert.match(
      here,
      /the number 9007199254740993 cannot be passed on exactly/,
      `the result of the call here: ${here}`,
    )
    return `${largeInteger} is whole in the row and in the arguments of the call, in both; our tool in JavaScript refuses it`
  }

  async #abandon(url: string): Promise<Pick<MockCounts, 'requests' | 'abandoned'>> {
    const delayMs = 1_000
    await this.#bench.setDelay(delayMs)
    const before = await this.#bench.counts()
    const leaving = new AbortController()
    const headers = { 'content-type': 'application/json' }
    const init = { method: 'POST', headers, body: row('3', '1', '4'), signal: leaving.signal }
    const runs = Array.from({ length: abandonedRuns }, () => fetch(`${url}/run`, init))
    const all = Promise.allSettled(runs)
    while ((await this.#bench.counts()).open < abandonedRuns) await wait(10)
    leaving.abort()
    await all
    // As long as two more turns would take.
    await wait(3 * delayMs)
    const after = await this.#bench.counts()
    await this.#bench.setDelay(0)
    return { requests: after.requests - before.requests, abandoned: after.abandoned - before.abandoned }
  }
}
