import { existsSync } from 'node:fs'
import type { Readable, Writable } from 'node:stream'
import { MillraceError } from '../../../errors/index.ts'
import { Resource, within } from '../../../kit/index.ts'
import { letThrough, spawnGated, type GatedProcess } from './gated-spawn.ts'
import { ProcessFamily } from './_process-family.ts'
import { markVariable, ProcessGuard } from './process-guard.ts'
import { serverEnvironment } from './_server-environment.ts'
import { exitFailure, type ServerExit } from './server-exit.ts'
import { TailBuffer } from './_tail-buffer.ts'
import type { StdioServerConfig } from '../config/server-config.ts'

const defaultCloseGraceMs = 1_500
const terminateGraceMs = 1_000
// How long the kernel may take to end killed processes, and how long pipes may take to end whose writers are gone.
const killLimitMs = 20_000
const pipeLimitMs = 1_000
const stderrBytes = 8 * 1024

export interface ServerProcessOptions {
  /** The server's name in the configuration. */
  readonly server: string
  readonly config: StdioServerConfig
  /** How long the server may take to exit once its input has ended; 1.5 s if not given. */
  readonly closeGraceMs?: number
  readonly guard?: ProcessGuard
}

/**
 * A server that runs as a process of ours, with all that it starts: nothing of it is left once `ended` resolves, whether it was
 * closed or ended by itself, and nothing of it outlives us.
 */
export class ServerProcess extends Resource {
  readonly server: string
  readonly pid: number
  readonly stdin: Writable
  readonly stdout: Readable
  /** Resolves when the process was reaped, its descendants are dead, and its output was read to the end. Never rejects. */
  readonly ended: Promise<ServerExit>

  readonly #command: string
  readonly #process: GatedProcess
  readonly #family: ProcessFamily
  readonly #guard: ProcessGuard
  readonly #closeGraceMs: number
  readonly #stderr = new TailBuffer(stderrBytes)
  #exit: ServerExit | undefined
  #leftover: MillraceError | undefined

  private constructor(options: ServerProcessOptions, gated: GatedProcess, family: ProcessFamily) {
    super()
    this.server = options.server
    this.pid = gated.pid
    this.stdin = gated.stdin
    this.stdout = gated.stdout
    this.#command = options.config.command
    this.#process = gated
    this.#family = family
    this.#guard = options.guard ?? ProcessGuard.ofThisThread
    this.#closeGraceMs = options.closeGraceMs ?? defaultCloseGraceMs
    gated.stderr.on('data', (chunk: Buffer) => this.#stderr.push(chunk))
    this.ended = this.#end()
  }

  /** Resolves when the server's command runs. A command that could not run shows in `ended`. */
  static async start(options: ServerProcessOptions): Promise<ServerProcess> {
    const { server, config, guard = ProcessGuard.ofThisThread } = options
    const mark = guard.nextMark()
    const env = { ...serverEnvironment(config.env), [markVariable]: mark }
    const gated = await spawnGated(config, env).catch((error: unknown) => {
      throw startFailure(server, config, error)
    })
    const started = new ServerProcess(options, gated, new ProcessFamily(gated.pid, mark, guard))
    try {
      await guard.watch(gated.pid)
    } catch (error) {
      await started.close()
      throw error
    }
    letThrough(gated)
    return started
  }

  /** Set from the moment the process has exited, which is before `ended`. */
  get exit(): ServerExit | undefined {
    return this.#exit
  }

  /** The last 8 KB of the server's stderr. */
  get stderr(): string {
    return this.#stderr.toString()
  }

  /** Why the server is gone; undefined while it runs. */
  get failure(): MillraceError | undefined {
    if (!this.#exit) return undefined
    return exitFailure({ server: this.server, command: this.#command, exit: this.#exit, stderr: this.stderr })
  }

  /** Ends the server's input; then asks it, with its group, to terminate; then kills it, with all that it started. */
  protected async onClose(): Promise<void> {
    this.#process.gate.destroy()
    this.#noteFamily()
    this.stdin.end()
    if (!(await within(this.#process.exited, this.#closeGraceMs))) {
      this.#noteFamily()
      this.#family.signalGroup('SIGTERM')
      if (!(await within(this.#process.exited, terminateGraceMs))) {
        this.#noteFamily()
        this.#family.signalGroup('SIGKILL')
      }
    }
    if (!(await within(this.ended, killLimitMs))) throw this.#stuck()
    if (this.#leftover) throw this.#leftover
  }

  async #end(): Promise<ServerExit> {
    this.#exit = await this.#process.exited
    try {
      // After a crash nothing can finish in good order, and a new process may be waiting for this to be over.
      if (this.isClosed) await this.#family.terminate(terminateGraceMs)
      await this.#family.kill()
      await this.#guard.forget(this.pid)
    } catch (error) {
      this.#leftover = MillraceError.from(error, 'tool_infra')
    }
    // A process that hid from us may hold the other end of the pipes.
    if (!(await within(this.#process.closed, pipeLimitMs))) {
      this.stdout.destroy()
      this.#process.stderr.destroy()
    }
    return this.#exit
  }

  #noteFamily(): void {
    if (!this.#exit) this.#family.note()
  }

  #stuck(): MillraceError {
    return new MillraceError(
      'tool_infra',
      `the process ${this.pid} of server '${this.server}' does not die: it hangs in the kernel, see /proc/${this.pid}/stack`,
      { data: { server: this.server, pid: this.pid } },
    )
  }
}

function startFailure(server: string, { cwd }: StdioServerConfig, error: unknown): MillraceError {
  const isLost = cwd !== undefined && !existsSync(cwd)
  const why = isLost
    ? `its folder ${cwd} does not exist: correct "cwd"`
    : MillraceError.from(error, 'tool_infra').rawMessage
  return new MillraceError('tool_infra', `server '${server}' could not be started: ${why}`, {
    data: { server },
    cause: error,
  })
}
