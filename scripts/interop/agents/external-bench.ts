import { mkdir, readdir, writeFile } from 'node:fs/promises'
import { delimiter, join } from 'node:path'
import { freePort } from '../../../test/support/kit/free-port.ts'
import { SimulatorServer } from '../../../src/simulator/index.ts'
import { check } from '../part.ts'
import { runProgram } from '../run-program.ts'
import { ServerProcess } from '../server-process.ts'
import type { Tokens } from '../token-record.ts'
import type { ExternalAgent } from './external-agents.ts'

const millraceProgram = join(import.meta.dirname, '..', '..', '..', 'bin', 'millrace.js')
const runMs = 5 * 60_000
const startMs = 60_000

/** Where one agent is tried: the simulator as its model, and folders in which everything that it leaves behind is seen. */
export class ExternalBench implements AsyncDisposable {
  readonly folder: string
  readonly #simulator: SimulatorServer
  readonly #env: Readonly<Record<string, string>>

  private constructor(folder: string, simulator: SimulatorServer, env: Readonly<Record<string, string>>) {
    this.folder = folder
    this.#simulator = simulator
    this.#env = env
  }

  static async open(folder: string, modules: string, tokens: 'words' | 'lossy' = 'words'): Promise<ExternalBench> {
    const [home, temporary, programs] = ['home', 'tmp', 'bin'].map((name) => join(folder, name)) as [
      string,
      string,
      string,
    ]
    for (const each of [home, temporary, programs]) await mkdir(each, { recursive: true })
    const wrapper = `#!/bin/sh\nexec '${process.execPath}' --no-warnings '${millraceProgram}' "$@"\n`
    await writeFile(join(programs, 'millrace'), wrapper, { mode: 0o755 })
    const simulator = await SimulatorServer.start({ imitate: 'vllm', reasoning: true, recordEmitted: 10_000, tokens })
    return new ExternalBench(folder, simulator, {
      PATH: [programs, join(modules, '.bin'), process.env['PATH']].join(delimiter),
      HOME: home,
      TMPDIR: temporary,
      // Millrace's own, which would be below TMPDIR.
      NODE_COMPILE_CACHE: join(folder, 'compiled'),
      OPENAI_BASE_URL: simulator.url,
    })
  }

  /** Runs the agent's own line with more flags, to its end. */
  async evaluate({ line }: ExternalAgent, flags: string): Promise<void> {
    const words = ['-ec', `${line} ${flags}`]
    const { folder: cwd } = this
    check(await runProgram('/bin/sh', words, { cwd, env: this.#env, timeoutMs: runMs }), 'millrace eval failed')
  }

  /** The lines of `millrace export`. */
  async exported<Line>(run: string, ...flags: readonly string[]): Promise<Line[]> {
    const words = ['--no-warnings', millraceProgram, 'export', run, ...flags]
    const { folder: cwd } = this
    const ran = await runProgram(process.execPath, words, { cwd, env: this.#env, timeoutMs: runMs })
    check(ran, 'millrace export failed')
    return ran.output
      .trimEnd()
      .split('\n')
      .map((each) => JSON.parse(each) as Line)
  }

  /** `millrace serve` with the same agent. */
  async serve({ line }: ExternalAgent): Promise<ServerProcess & { readonly url: string }> {
    await this.setModelDelay(0)
    const port = await freePort()
    const served = line.replace('millrace eval', 'exec millrace serve').replace(/ --limit \d+/, '')
    const url = `http://127.0.0.1:${port}`
    const server = await ServerProcess.start({
      program: '/bin/sh',
      words: ['-ec', `${served} --port ${port} --log-level error`],
      env: this.#env,
      cwd: this.folder,
      readyUrl: `${url}/ready`,
      startMs,
    })
    return Object.assign(server, { url })
  }

  /** The replies to a rollout as they left the simulator. */
  async emitted(session: string): Promise<readonly Tokens[]> {
    const { replies } = await this.#ask<{ replies: readonly Tokens[] }>(`/sim/emitted?session=${session}`)
    return replies
  }

  /** How long the model takes to begin a reply. */
  async setModelDelay(ttftMs: number): Promise<void> {
    await this.#ask('/sim/settings', { method: 'POST', body: JSON.stringify({ ttftMs }) })
  }

  /** Requests that the model is answering. */
  async modelCalls(): Promise<number> {
    return (await this.#ask<{ inFlight: number }>('/sim/stats')).inFlight
  }

  /** What is in the folders in which programs leave things behind. */
  async leftFiles(): Promise<string[]> {
    const folders = ['HOME', 'TMPDIR'].map((name) => this.#env[name] ?? '')
    const names = await Promise.all(folders.map(async (each) => await readdir(each)))
    return names.flat()
  }

  async #ask<Reply>(path: string, init: RequestInit = {}): Promise<Reply> {
    return (await (await fetch(new URL(path, this.#simulator.url), init)).json()) as Reply
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#simulator[Symbol.asyncDispose]()
  }
}
