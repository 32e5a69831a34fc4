import { join } from 'node:path'
import { BenchChild } from '../../../bench/shared/bench-child.ts'
import type { MockCounts, MockModel } from '../../../bench/shared/mock-model.ts'
import { freePort } from '../../../test/support/kit/free-port.ts'
import { ServerProcess } from '../server-process.ts'
import { millraceProgram, writeLines } from './evaluate-rows.ts'
import { counterServer, type GymServers, type NemoGym, openaiModel, simpleAgent } from './gym-servers.ts'

const counterEnvironment = join(import.meta.dirname, 'counter-environment.ts')
const startMs = 60_000

/** The agents: NeMo Gym's over its own resources server, NeMo Gym's over Millrace's, and the environment. */
export const agents = { theirs: 'simple_agent', theirsOverOurs: 'simple_agent_over_millrace', ours: 'counter' } as const

/** A server of Millrace, with its head. */
export interface Served extends AsyncDisposable {
  readonly head: string
  readonly pid: number
}

interface BenchParts {
  readonly gym: NemoGym
  readonly folder: string
  readonly mock: MockModel
  readonly servers: GymServers
  readonly resourcesPort: number
}

/** What both sides are tried with: the same mock model, NeMo Gym's servers, and Millrace's as they are needed. */
export class GymBench implements AsyncDisposable {
  readonly gym: NemoGym
  readonly folder: string
  readonly mock: MockModel
  readonly servers: GymServers
  /** Where NeMo Gym's second agent expects its resources server, which is ours. */
  readonly resourcesPort: number
  readonly #owned: AsyncDisposableStack

  private constructor({ gym, folder, mock, servers, resourcesPort }: BenchParts, owned: AsyncDisposableStack) {
    this.gym = gym
    this.folder = folder
    this.mock = mock
    this.servers = servers
    this.resourcesPort = resourcesPort
    this.#owned = owned
  }

  static async open(gym: NemoGym, folder: string): Promise<GymBench> {
    await using owned = new AsyncDisposableStack()
    const model = new URL('../../../bench/shared/mock-model.ts', import.meta.url)
    const mock = await owned.use(new BenchChild(model, {})).answer<MockModel>()
    const resourcesPort = await freePort()
    const servers = owned.use(
      await gym.start({
        counter: counterServer,
        counter_here: { ...counterServer, port: resourcesPort },
        policy_model: openaiModel(mock.url),
        [agents.theirs]: simpleAgent('counter', 'policy_model'),
        [agents.theirsOverOurs]: simpleAgent('counter_here', 'policy_model'),
      }),
    )
    return new GymBench({ gym, folder, mock, servers, resourcesPort }, owned.move())
  }

  /** `millrace serve --nemo-gym` over the mock model. */
  async serve(at?: number): Promise<Served> {
    const port = at ?? (await freePort())
    const head = `127.0.0.1:${port}`
    const model = ['-m', 'mock', '--base-url', this.mock.url]
    const words = ['serve', counterEnvironment, '--nemo-gym', '--port', String(port), ...model, '--log-level', 'error']
    const server = await ServerProcess.start({
      program: process.execPath,
      words: [millraceProgram, ...words],
      cwd: this.folder,
      readyUrl: `http://${head}/ready`,
      startMs,
    })
    return { head, pid: server.pid, [Symbol.asyncDispose]: () => server[Symbol.asyncDispose]() }
  }

  async run(url: string, body: string): Promise<string> {
    const headers = { 'content-type': 'application/json' }
    return await (await fetch(`${url}/run`, { method: 'POST', headers, body })).text()
  }

  /** How long the mock model takes for a reply. */
  async setDelay(delayMs: number): Promise<void> {
    await (await fetch(this.mock.controlUrl, { method: 'POST', body: JSON.stringify({ delayMs }) })).text()
  }

  async counts(): Promise<MockCounts> {
    return (await (await fetch(this.mock.controlUrl)).json()) as MockCounts
  }

  async write(name: string, lines: readonly string[]): Promise<string> {
    return await writeLines(join(this.folder, name), lines)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#owned.disposeAsync()
  }
}

function tool(name: string, properties: object): object {
  const parameters = { type: 'object', properties, required: Object.keys(properties), additionalProperties: false }
  return { type: 'function', name, description: '', strict: true, parameters }
}

const increment = tool('increment_counter', { count: { type: 'integer', description: '' } })

/** Two turns and one tool call: the model adds the number that it is told to, which is written as it stands. */
export function row(start: string, add: string, expected: string): string {
  return rowOf([increment], `add ${add}`, `"initial_count":${start},"expected_count":${expected}`)
}

/** The model makes these calls one after the other, word for word. */
export function rowWithCalls(start: string, calls: readonly string[], expected: string): string {
  const task = calls.map((each) => `call ${each}`).join('\n')
  const tools = [increment, tool('get_counter_value', {})]
  return rowOf(tools, task, `"initial_count":${start},"expected_count":${expected}`)
}

function rowOf(tools: readonly object[], content: string, fields: string): string {
  const params = { input: [{ role: 'user', content }], tools }
  return `{"responses_create_params":${JSON.stringify(params)},${fields}}`
}
