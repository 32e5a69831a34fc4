import { type ChildProcess, spawn } from 'node:child_process'
import { setTimeout as wait } from 'node:timers/promises'

interface ServerOptions {
  readonly program: string
  readonly words: readonly string[]
  readonly env?: NodeJS.ProcessEnv
  readonly cwd?: string
  /** Answers with a status below 400 once the server is ready. */
  readonly readyUrl: string
  readonly startMs: number
}

const pollMs = 200
const shownCharacters = 4_000

/** A server as its users start it. It has a process group of its own, all of which is killed at the end. */
export class ServerProcess implements AsyncDisposable {
  readonly #child: ChildProcess
  readonly #output: string[] = []
  readonly #ended: Promise<void>
  #isRunning = true

  private constructor({ program, words, env, cwd }: ServerOptions) {
    const child = spawn(program, words, { env, cwd, detached: true, stdio: ['ignore', 'pipe', 'pipe'] })
    this.#child = child
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#ended = promise
    for (const stream of [child.stdout, child.stderr]) {
      stream?.setEncoding('utf8').on('data', (text: string) => {
        this.#output.push(text)
        if (this.#output.length > shownCharacters) this.#output.splice(0, shownCharacters / 2)
      })
    }
    child.on('error', (error) => {
      this.#output.push(error.message)
      this.#onEnd(resolve)
    })
    child.on('close', () => this.#onEnd(resolve))
    // An interrupt of this process does not reach it.
    process.on('exit', this.#kill)
  }

  static async start(options: ServerOptions): Promise<ServerProcess> {
    const server = new ServerProcess(options)
    try {
      await server.#ready(options)
      return server
    } catch (error) {
      await server[Symbol.asyncDispose]()
      throw error
    }
  }

  get pid(): number {
    return this.#child.pid ?? 0
  }

  /** The end of what it wrote. */
  get output(): string {
    return this.#output.join('').slice(-shownCharacters)
  }

  async #ready({ program, words, readyUrl, startMs }: ServerOptions): Promise<void> {
    const deadline = performance.now() + startMs
    while (this.#isRunning && performance.now() < deadline) {
      const answer = await fetch(readyUrl).catch(() => undefined)
      await answer?.body?.cancel()
      if (answer?.ok) return
      await wait(pollMs)
    }
    throw new Error(`${this.output}\n${program} ${words.join(' ')} did not start`)
  }

  #onEnd(resolve: () => void): void {
    this.#isRunning = false
    process.off('exit', this.#kill)
    resolve()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#kill()
    await this.#ended
  }

  readonly #kill = (): void => {
    const { pid } = this.#child
    if (pid !== undefined && this.#isRunning) process.kill(-pid, 'SIGKILL')
  }
}
