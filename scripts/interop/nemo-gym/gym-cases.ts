import assert from 'node:assert/strict'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as wait } from 'node:timers/promises'
import { BenchChild } from '../../../bench/shared/bench-child.ts'
import { median, table } from '../../../bench/shared/benchmark.ts'
import type { MockCounts, MockModel } from '../../../bench/shared/mock-model.ts'
import { cpuMsOf } from '../../../bench/shared/process-usage.ts'
import { freePort } from '../../../test/support/kit/free-port.ts'
import { say } from '../part.ts'
import { ServerProcess } from '../server-process.ts'
import { counterServer, type GymServers, type NemoGym, openaiModel, simpleAgent } from './gym-servers.ts'

const millraceProgram = join(import.meta.dirname, '..', '..', '..', 'bin', 'millrace.js')
const counterEnvironment = join(import.meta.dirname, 'counter-environment.ts')
const startMs = 60_000
/** The name of each agent: NeMo Gym's, and the environment's. */
const theirs = 'simple_agent'
const ours = 'counter'
const costRollouts = 500
const costRounds = 3
const atOnce = 32
const leastCostRatio = 15
const abandonedRuns = 20
const collectedRows = 1_000
/** One row in so many cannot be run. */
const badEvery = 50
/** More than a double has digits for. */
const largeInteger = '9007199254740993'

const tool = {
  type: 'function',
  name: 'increment_counter',
  description: '',
  strict: true,
  parameters: {
    type: 'object',
    properties: { count: { type: 'integer', description: '' } },
    required: ['count'],
    additionalProperties: false,
  },
}

/** Two turns and one tool call: the model adds the number that it is told to, which is written as it stands. */
export function row(start: string, add: string, expected: string): string {
  const params = { input: [{ role: 'user', content: `add ${add}` }], tools: [tool] }
  return `{"responses_create_params":${JSON.stringify(params)},"initial_count":${start},"expected_count":${expected}}`
}

/** What both sides are tried with: the same rows, and the same mock model. */
export class GymCases implements AsyncDisposable {
  readonly #gym: NemoGym
  readonly #folder: string
  readonly #mock: MockModel
  readonly #servers: GymServers
  readonly #owned: AsyncDisposableStack

  private constructor(
    { gym, folder, mock, servers }: { gym: NemoGym; folder: string; mock: MockModel; servers: GymServers },
    owned: AsyncDisposableStack,
  ) {
    this.#gym = gym
    this.#folder = folder
    this.#mock = mock
    this.#servers = servers
    this.#owned = owned
  }

  static async open(gym: NemoGym, folder: string): Promise<GymCases> {
    await using owned = new AsyncDisposableStack()
    const model = new URL('../../../bench/shared/mock-model.ts', import.meta.url)
    const mock = await owned.use(new BenchChild(model, {})).answer<MockModel>()
    const servers = owned.use(
      await gym.start({
        counter: counterServer,
        policy_model: openaiModel(mock.url),
        [theirs]: simpleAgent('counter', 'policy_model'),
      }),
    )
    return new GymCases({ gym, folder, mock, servers }, owned.move())
  }

  /** CPU of all servers of an agent for one rollout of two turns and one tool, driven by NeMo Gym's collector. */
  async cost(): Promise<string> {
    await using millrace = await this.#serve()
    const rows = Array.from({ length: costRollouts }, (_, index) => row('3', `${index + 1}`, `${index + 4}`))
    const input = await this.#write('cost.jsonl', rows)
    const measured: Record<'theirs' | 'ours', number[]> = { theirs: [], ours: [] }
    const parts: Record<string, number[]> = {}
    const run = async (head: string, agent: string): Promise<void> => {
      const output = join(this.#folder, 'cost-results.jsonl')
      const { rewarded } = await this.#gym.collect({ head, agent, input, output, atOnce, aggregates: false })
      assert.equal(rewarded, costRollouts, `rollouts of ${agent} with the reward 1`)
    }
    // The first round only warms up.
    for (let round = 0; round <= costRounds; round += 1) {
      const before = this.#servers.cpuMs()
      await run(this.#servers.head, theirs)
      const after = this.#servers.cpuMs()
      const used = Object.entries(after).map(([name, ms]) => [name, (ms - (before[name] ?? 0)) / costRollouts] as const)
      const oursBefore = cpuMsOf(millrace.pid)
      await run(millrace.head, ours)
      const oursUsed = (cpuMsOf(millrace.pid) - oursBefore) / costRollouts
      if (round === 0) continue
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
    await using millrace = await this.#serve()
    const isBad = (index: number): boolean => index % badEvery === 7
    const rows = Array.from({ length: collectedRows }, (_, index) => {
      const good = row('3', `${index + 1}`, `${index + 4}`)
      if (!isBad(index)) return good
      // Two kinds of mistakes: a field of the task, and a parameter that does not exist.
      return index % (2 * badEvery) === 7 ? row('"three"', '1', '4') : good.replace('{"input"', '{"no_such":1,"input"')
    })
    const input = await this.#write('collection.jsonl', rows)
    const output = join(this.#folder, 'collection-results.jsonl')
    const found = await this.#gym.collect({ head: millrace.head, agent: ours, input, output, atOnce })
    const bad = rows.filter((_, index) => isBad(index)).length
    const expected = { results: collectedRows, rewarded: collectedRows - bad, failed: bad }
    assert.partialDeepStrictEqual(found, expected)
    return `${found.results} results of ${collectedRows} rows, ${found.failed} of them failures, ${found.rewarded} with the reward 1`
  }

  /** What a client that leaves in the middle of the first model call still costs. */
  async abandoned(): Promise<string> {
    await using millrace = await this.#serve()
    const there = await this.#abandon(this.#servers.url(theirs))
    const here = await this.#abandon(`http://${millrace.head}`)
    assert.deepEqual(here, { requests: abandonedRuns, abandoned: abandonedRuns })
    return `of ${abandonedRuns} abandoned runs, ${here.abandoned} model calls were cut here and ${there.abandoned} there, and the model was asked ${here.requests} times here and ${there.requests} times there`
  }

  /** A tool in JavaScript has no such number, and says so to the model: nothing is rounded. */
  async largeIntegers(): Promise<string> {
    await using millrace = await this.#serve()
    const asked = row('0', largeInteger, largeInteger)
    const there = await this.#run(this.#servers.url(theirs), asked)
    const here = await this.#run(`http://${millrace.head}`, asked)
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

  async #run(url: string, body: string): Promise<string> {
    const headers = { 'content-type': 'application/json' }
    return await (await fetch(`${url}/run`, { method: 'POST', headers, body })).text()
  }

  async #abandon(url: string): Promise<Pick<MockCounts, 'requests' | 'abandoned'>> {
    const delayMs = 1_000
    await this.#setDelay(delayMs)
    const before = await this.#counts()
    const leaving = new AbortController()
    const headers = { 'content-type': 'application/json' }
    const init = { method: 'POST', headers, body: row('3', '1', '4'), signal: leaving.signal }
    const runs = Array.from({ length: abandonedRuns }, () => fetch(`${url}/run`, init))
    const all = Promise.allSettled(runs)
    while ((await this.#counts()).open < abandonedRuns) await wait(10)
    leaving.abort()
    await all
    // As long as two more turns would take.
    await wait(3 * delayMs)
    const after = await this.#counts()
    await this.#setDelay(0)
    return { requests: after.requests - before.requests, abandoned: after.abandoned - before.abandoned }
  }

  async #setDelay(delayMs: number): Promise<void> {
    await (await fetch(this.#mock.controlUrl, { method: 'POST', body: JSON.stringify({ delayMs }) })).text()
  }

  async #counts(): Promise<MockCounts> {
    return (await (await fetch(this.#mock.controlUrl)).json()) as MockCounts
  }

  /** `millrace serve --nemo-gym` over the mock model. */
  async #serve(): Promise<AsyncDisposable & { readonly head: string; readonly pid: number }> {
    const head = `127.0.0.1:${await freePort()}`
    const [, port = ''] = head.split(':')
    const words = [
      'serve',
      counterEnvironment,
      '--nemo-gym',
      '--port',
      port,
      '-m',
      'mock',
      '--base-url',
      this.#mock.url,
    ]
    const server = await ServerProcess.start({
      program: process.execPath,
      words: [millraceProgram, ...words, '--log-level', 'error'],
      cwd: this.#folder,
      readyUrl: `http://${head}/ready`,
      startMs,
    })
    return { head, pid: server.pid, [Symbol.asyncDispose]: () => server[Symbol.asyncDispose]() }
  }

  async #write(name: string, rows: readonly string[]): Promise<string> {
    const path = join(this.#folder, name)
    await writeFile(path, rows.map((each) => `${each}\n`).join(''))
    return path
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#owned.disposeAsync()
  }
}
