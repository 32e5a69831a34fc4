import { join } from 'node:path'
import { cpuMsOf } from '../../../bench/shared/process-usage.ts'
import { freePort } from '../../../test/support/kit/free-port.ts'
import { ServerProcess } from '../server-process.ts'
import { runProgram } from '../run-program.ts'
import { check } from '../part.ts'

const startMs = 3 * 60_000
const collectMs = 10 * 60_000

/** A server of NeMo Gym's configuration: its kind, its implementation, and the settings of that. */
export interface GymBlock {
  readonly kind: 'responses_api_agents' | 'resources_servers' | 'responses_api_models'
  readonly implementation: string
  readonly settings?: Readonly<Record<string, unknown>>
  /** Where it is, if somebody else serves it. */
  readonly port?: number
}

export type GymBlocks = Readonly<Record<string, GymBlock>>

export interface Collected {
  readonly results: number
  readonly rewarded: number
  readonly failed: number
  /** Of the collector. */
  readonly cpuMs: number
  readonly wallMs: number
}

export interface Collection {
  /** Host and port. */
  readonly head: string
  readonly agent: string
  readonly input: string
  readonly output: string
  readonly atOnce: number
  /** Whether it asks for the metrics of all results at the end. */
  readonly aggregates?: boolean
}

/** NeMo Gym in a virtual environment. */
export class NemoGym {
  readonly python: string
  /** The folder with its packages, in which its configurations are. */
  readonly packages: string
  /** Where its programs may write what they like. */
  readonly #folder: string

  private constructor(python: string, packages: string, folder: string) {
    this.python = python
    this.packages = packages
    this.#folder = folder
  }

  static async find(python: string, folder: string): Promise<NemoGym> {
    const words = ['-c', 'import sysconfig; print(sysconfig.get_path("purelib"))']
    const { output } = await runProgram(python, words, { timeoutMs: startMs })
    return new NemoGym(python, output.trim(), folder)
  }

  /** Starts a head, and a process for each block that nobody else serves. */
  async start(blocks: GymBlocks): Promise<GymServers> {
    await using owned = new AsyncDisposableStack()
    const head = { host: '127.0.0.1', port: await freePort() }
    const placed: Record<string, unknown> = { head_server: head, dry_run: false }
    const own: { name: string; port: number }[] = []
    for (const [name, { kind, implementation, settings, port: served }] of Object.entries(blocks)) {
      const port = served ?? (await freePort())
      placed[name] = { [kind]: { [implementation]: { entrypoint: 'app.py', ...settings, host: '127.0.0.1', port } } }
      if (served === undefined) own.push({ name, port })
    }
    const start = async (name: string, port: number, path: string): Promise<ServerProcess> =>
      owned.use(
        await ServerProcess.start({
          program: this.python,
          words: [join(import.meta.dirname, 'server.py'), name],
          env: { ...process.env, PYTHONDONTWRITEBYTECODE: '1', NEMO_GYM_CONFIG_DICT: JSON.stringify(placed) },
          cwd: this.#folder,
          readyUrl: `http://127.0.0.1:${port}${path}`,
          startMs,
        }),
      )
    const starting = own.map(async ({ name, port }) => [name, { port, child: await start(name, port, '/') }] as const)
    await start('head', head.port, '/global_config_dict_yaml')
    const started = new Map(await Promise.all(starting))
    return new GymServers(`${head.host}:${head.port}`, started, owned.move())
  }

  async collect({ head, agent, input, output, atOnce, aggregates = true }: Collection): Promise<Collected> {
    const script = join(import.meta.dirname, 'collect.py')
    const words = [script, head, agent, input, output, String(atOnce), String(aggregates)]
    const ran = await runProgram(this.python, words, { cwd: this.#folder, timeoutMs: collectMs })
    check(ran, 'NeMo Gym’s collector failed')
    return JSON.parse(/^\{"results".*$/m.exec(ran.output)?.[0] ?? '{}') as Collected
  }
}

export class GymServers implements AsyncDisposable {
  /** Host and port. */
  readonly head: string
  readonly #servers: ReadonlyMap<string, { readonly port: number; readonly child: ServerProcess }>
  readonly #owned: AsyncDisposableStack

  constructor(
    head: string,
    servers: ReadonlyMap<string, { readonly port: number; readonly child: ServerProcess }>,
    owned: AsyncDisposableStack,
  ) {
    this.head = head
    this.#servers = servers
    this.#owned = owned
  }

  url(name: string): string {
    return `http://127.0.0.1:${this.#servers.get(name)?.port}`
  }

  /** Used so far, by each of these servers. */
  cpuMs(names: readonly string[]): Readonly<Record<string, number>> {
    return Object.fromEntries(names.map((name) => [name, cpuMsOf(this.#servers.get(name)?.child.pid ?? 0)]))
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#owned.disposeAsync()
  }
}

/** NeMo Gym's own example with session state: a counter for each session. */
export const counterServer: GymBlock = {
  kind: 'resources_servers',
  implementation: 'example_session_state_mgmt',
  settings: { domain: 'agent', verified: false, description: 'A counter' },
}

export function openaiModel(baseUrl: string): GymBlock {
  const settings = { openai_base_url: baseUrl, openai_api_key: 'none', openai_model: 'mock' }
  return { kind: 'responses_api_models', implementation: 'openai_model', settings }
}

/** Its agent, over the other two by their names. */
export function simpleAgent(resources: string, model: string): GymBlock {
  const settings = {
    resources_server: { type: 'resources_servers', name: resources },
    model_server: { type: 'responses_api_models', name: model },
  }
  return { kind: 'responses_api_agents', implementation: 'simple_agent', settings }
}
