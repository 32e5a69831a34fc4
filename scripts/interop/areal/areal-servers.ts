import { join } from 'node:path'
import { freePort } from '../../../test/support/kit/free-port.ts'
import { check } from '../part.ts'
import { runProgram } from '../run-program.ts'
import { ServerProcess } from '../server-process.ts'

const millraceProgram = join(import.meta.dirname, '..', '..', '..', 'bin', 'millrace.js')
const services = 'areal.experimental.inference_service'
const startMs = 3 * 60_000
/** So that AReaL's own servers have it by default, too. */
export const adminKey = 'areal-admin-key'

/** A server of either kind, to which the same client is pointed. */
export interface Target {
  readonly url: string
  readonly pids: readonly number[]
}

interface Places {
  /** With AReaL in it. */
  readonly python: string
  readonly tokenizer: string
  readonly folder: string
}

/** The servers of both, before the same mock model. */
export class ArealServers implements AsyncDisposable {
  readonly #places: Places
  readonly #model: string
  readonly #owned: AsyncDisposableStack

  private constructor(places: Places, model: string, owned: AsyncDisposableStack) {
    this.#places = places
    this.#model = model
    this.#owned = owned
  }

  static async open(places: Places, delayMs: number): Promise<ArealServers> {
    await using owned = new AsyncDisposableStack()
    const port = await freePort()
    const model = `http://127.0.0.1:${port}`
    owned.use(
      await ServerProcess.start({
        program: process.execPath,
        words: ['--no-warnings', join(import.meta.dirname, 'byte-model.ts'), String(port), String(delayMs)],
        cwd: places.folder,
        readyUrl: `${model}/health`,
        startMs,
      }),
    )
    return new ArealServers(places, model, owned.move())
  }

  /** AReaL's router, one data proxy and its gateway. */
  async startAreal(): Promise<Target> {
    const router = await this.#service('router', [])
    const backend = ['--backend-addr', this.#model, '--backend-type', 'sglang']
    const proxy = await this.#service('data_proxy', [...backend, '--tokenizer-path', this.#places.tokenizer])
    const gateway = await this.#service('gateway', ['--router-addr', router.url])
    await post(`${router.url}/register`, { worker_addr: proxy.url })
    await post(`${gateway.url}/register_model`, { model: 'default', url: '', data_proxy_addrs: [proxy.url] })
    return { url: gateway.url, pids: [router, proxy, gateway].flatMap(({ pids }) => pids) }
  }

  async startMillrace(...flags: readonly string[]): Promise<Target> {
    const port = await freePort()
    const url = `http://127.0.0.1:${port}`
    const run = ['--run', `areal-${port}`, '--port', String(port), '--log-level', 'error']
    const server = this.#owned.use(
      await ServerProcess.start({
        program: process.execPath,
        words: [millraceProgram, 'gateway', '--backend', `${this.#model}/v1`, '--areal', ...flags, ...run],
        env: { ...process.env, MILLRACE_ADMIN_KEY: adminKey },
        cwd: this.#places.folder,
        readyUrl: `${url}/ready`,
        startMs,
      }),
    )
    return { url, pids: [server.pid] }
  }

  /** What workflow.py says. */
  async ask<Answer>(asked: object, timeoutMs: number): Promise<Answer> {
    const words = ['-W', 'ignore', join(import.meta.dirname, 'workflow.py'), JSON.stringify(asked)]
    const ran = await runProgram(this.#places.python, words, { cwd: this.#places.folder, timeoutMs })
    check(ran, 'AReaL’s client failed')
    return JSON.parse(/^\{.*\}$/m.exec(ran.output)?.[0] ?? '{}') as Answer
  }

  async #service(name: string, more: readonly string[]): Promise<Target> {
    const port = await freePort()
    const url = `http://127.0.0.1:${port}`
    const place = ['--host', '127.0.0.1', '--port', String(port), '--admin-api-key', adminKey, '--log-level', 'error']
    const server = this.#owned.use(
      await ServerProcess.start({
        program: this.#places.python,
        words: ['-W', 'ignore', '-m', `${services}.${name}`, ...place, ...more],
        env: { ...process.env, TOKENIZERS_PARALLELISM: 'false' },
        cwd: this.#places.folder,
        readyUrl: `${url}/health`,
        startMs,
      }),
    )
    return { url, pids: [server.pid] }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#owned.disposeAsync()
  }
}

async function post(url: string, body: object): Promise<void> {
  const headers = { 'content-type': 'application/json', authorization: `Bearer ${adminKey}` }
  const reply = await fetch(url, { method: 'POST', headers, body: JSON.stringify(body) })
  if (!reply.ok) throw new Error(`${url} answered ${reply.status}: ${await reply.text()}`)
}
