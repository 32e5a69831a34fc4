import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { check } from '../part.ts'
import { runProgram } from '../run-program.ts'
import { evaluateRows, type Exported, readLines } from './evaluate-rows.ts'
import { agents, type GymBench, row, rowWithCalls } from './gym-bench.ts'

const atOnce = 32
const sessionRows = 200
const brokenRows = 20
const profiledTasks = 50
const profiledRollouts = 4
const profileMs = 2 * 60_000
const largeInteger = '9007199254740993'
const server = 'example_session_state_mgmt'

/** JSON, but no number that Python writes again: the tool answers 500, and NeMo Gym's 500 has no cookie. */
const failingCall = 'increment_counter {"count":1e999}'

/** A result of NeMo Gym's collector. */
interface GymResult {
  readonly reward: number
  readonly response: { readonly output: readonly { readonly content?: readonly { readonly text: string }[] }[] }
}

/** Agents of one side over servers of the other, and NeMo Gym's reports over what Millrace did. */
export class GymTogether {
  readonly #bench: GymBench
  #runs = 0

  constructor(bench: GymBench) {
    this.#bench = bench
  }

  /** NeMo Gym's simple_agent calls three tools of ours, of which one fails, and the session is kept. */
  async theirAgent(): Promise<string> {
    const { gym, servers, resourcesPort } = this.#bench
    await using _millrace = await this.#bench.serve(resourcesPort)
    const input = await this.#bench.write('their-agent.jsonl', sessions(sessionRows, 'break_counter {}'))
    const output = this.#file('their-agent-results.jsonl')
    const found = await gym.collect({ head: servers.head, agent: agents.theirsOverOurs, input, output, atOnce })
    assert.partialDeepStrictEqual(found, { results: sessionRows, rewarded: sessionRows })
    const results = await readLines<GymResult>(output)
    const counted = results.filter(({ response }) => {
      const text = response.output.at(-1)?.content?.[0]?.text ?? ''
      return /^Answer: \{"count":\d+\}$/.test(text)
    })
    assert.equal(counted.length, sessionRows, 'replies with the value of the counter')
    return `${found.rewarded} of ${sessionRows} rollouts with three calls and one that fails have the reward 1`
  }

  /** `millrace eval --nemo-gym` with NeMo Gym's own configuration file, over its Python server. */
  async ourAgent(): Promise<string> {
    const { servers } = this.#bench
    const rollouts = await this.#evaluate({
      words: [this.#configuration(), `--nemo-gym.url=${servers.url('counter')}`],
      rows: sessions(sessionRows),
      attempts: 2,
    })
    assertRewarded(rollouts, 2 * sessionRows)
    const counts = rollouts.map(({ messages }) => messages.at(-1)?.content)
    for (const text of counts) assert.match(text ?? '', /^Answer: \{"count":\s*\d+\}$/)
    return `${rollouts.length} rollouts with three calls in a session have the reward 1`
  }

  /** A tool that answers 500, without a cookie as all of NeMo Gym's: the session stays. */
  async failingTool(): Promise<string> {
    const { servers } = this.#bench
    const rollouts = await this.#evaluate({
      words: [`http://${servers.head}`, `--nemo-gym.agent=${agents.theirs}`],
      rows: sessions(brokenRows, failingCall),
    })
    assertRewarded(rollouts, brokenRows)
    const results = rollouts.flatMap(({ messages }) => messages.filter(({ role }) => role === 'tool'))
    const failed = results.filter(({ content }) => content?.includes('ValueError')).length
    assert.equal(failed, brokenRows, 'calls that failed')
    return `${brokenRows} rollouts whose second of four calls is answered with 500 have the reward 1`
  }

  /** The number is added by Python: it is in the row, in the model's arguments, in the request and in the results. */
  async largeIntegers(): Promise<string> {
    const rollouts = await this.#evaluate({
      words: [this.#configuration(), `--nemo-gym.url=${this.#bench.servers.url('counter')}`],
      rows: [rowWithCalls('0', [`increment_counter {"count":${largeInteger}}`, 'get_counter_value {}'], largeInteger)],
    })
    assertRewarded(rollouts, 1)
    const said = rollouts[0]?.messages.at(-1)?.content
    assert.match(said ?? '', new RegExp(`"count":\\s*${largeInteger}\\}`))
    return `${largeInteger} through a Python tool and its verifier: ${said}, reward 1`
  }

  /** `gym eval profile` over results that the collector got from Millrace, and over a run of `millrace eval`. */
  async profile(): Promise<string> {
    const { gym } = this.#bench
    await using millrace = await this.#bench.serve()
    // Equal lines are rollouts of one task. The counter of every fifth one cannot be right.
    const rows = Array.from({ length: profiledTasks * profiledRollouts }, (_, index) => {
      const task = Math.floor(index / profiledRollouts)
      return row('3', `${task + 1}`, `${task % 5 === 0 ? -1 : task + 4}`)
    })
    const input = await this.#bench.write('profiled.jsonl', rows)
    const output = this.#file('profiled-results.jsonl')
    await gym.collect({ head: millrace.head, agent: agents.ours, input, output, atOnce })
    const collected = await this.#profile(output.replace(/\.jsonl$/, '_materialized_inputs.jsonl'), output)

    const rollouts = await this.#evaluate({
      words: [this.#configuration(), `--nemo-gym.url=${this.#bench.servers.url('counter')}`],
      rows: rows.filter((_, index) => index % profiledRollouts === 0),
      attempts: profiledRollouts,
    })
    const places = rollouts.map(({ task, sample }) => ({ _ng_task_index: task.index, _ng_rollout_index: sample }))
    const inputs = places.map((place) => JSON.stringify({ ...place, agent_ref: { name: agents.ours } }))
    const results = rollouts.map(({ reward, usage }, index) => {
      const { inputTokens: input_tokens, outputTokens: output_tokens } = usage
      return JSON.stringify({ ...places[index], reward, response: { usage: { input_tokens, output_tokens } } })
    })
    const evaluated = await this.#profile(
      await this.#bench.write('evaluated-inputs.jsonl', inputs),
      await this.#bench.write('evaluated.jsonl', results),
    )
    for (const each of [collected, evaluated]) {
      assert.deepEqual(each, { tasks: profiledTasks, rollouts: rows.length, meanReward: 0.8 })
    }
    return `${rows.length} rollouts of ${profiledTasks} tasks, mean reward 0.8, from the collector’s results and from a run of millrace eval`
  }

  async #profile(inputs: string, rollouts: string): Promise<Record<'tasks' | 'rollouts' | 'meanReward', number>> {
    const gym = join(dirname(this.#bench.gym.python), 'gym')
    const words = ['eval', 'profile', '--inputs', inputs, '--rollouts', rollouts]
    check(await runProgram(gym, words, { cwd: this.#bench.folder, timeoutMs: profileMs }), 'NeMo Gym’s profiler failed')
    const stem = rollouts.replace(/\.jsonl$/, '')
    const tasks = await readLines<{ readonly num_rollouts: number }>(`${stem}_reward_profiling.jsonl`)
    const [agent] = JSON.parse(await readFile(`${stem}_agent_metrics.json`, 'utf8')) as Record<string, number>[]
    return {
      tasks: tasks.length,
      rollouts: tasks.reduce((sum, each) => sum + each.num_rollouts, 0),
      meanReward: agent?.['mean/reward'] ?? Number.NaN,
    }
  }

  async #evaluate(options: {
    readonly words: readonly string[]
    readonly rows: readonly string[]
    readonly attempts?: number
  }): Promise<Exported[]> {
    this.#runs += 1
    const { folder, mock } = this.#bench
    return await evaluateRows({ run: `run-${this.#runs}`, folder, model: mock.url, ...options })
  }

  /** As the package ships it. */
  #configuration(): string {
    return join(this.#bench.gym.packages, 'resources_servers', server, 'configs', `${server}.yaml`)
  }

  #file(name: string): string {
    return join(this.#bench.folder, name)
  }
}

/** Rows whose counter is right if every call but the one that fails reached the same session. */
function sessions(count: number, failing?: string): string[] {
  return Array.from({ length: count }, (_, index) => {
    const first = `increment_counter {"count":${index + 1}}`
    const rest = ['increment_counter {"count":2}', 'get_counter_value {}']
    return rowWithCalls('3', [first, ...(failing === undefined ? [] : [failing]), ...rest], `${index + 6}`)
  })
}

function assertRewarded(rollouts: readonly Exported[], count: number): void {
  const failed = rollouts.filter(({ reward }) => reward !== 1)
  assert.deepEqual(failed.slice(0, 1), [], `${failed.length} of ${rollouts.length} rollouts have another reward than 1`)
  assert.equal(rollouts.length, count)
}
