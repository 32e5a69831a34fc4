import { existsSync } from 'node:fs'
import { chmod, mkdir, readdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import type { Readable, Writable } from 'node:stream'
import { MillraceError } from '../errors/index.ts'
import { Resource, settlesWithin } from '../kit/index.ts'
import { ProcessGuard, tagVariable } from './process-guard.ts'
import { ProcessTree } from './process-tree.ts'
import {
  resumeSpawned,
  type ProgramExit,
  spawnSuspended,
  startRefusal,
  type SuspendedProcess,
} from './suspended-spawn.ts'
import { TailBuffer } from './tail-buffer.ts'

const defaultCloseGraceMs = 1_500
const terminateGraceMs = 1_000
// How long the kernel may take to end killed processes, and how long pipes may take to end whose writers are gone.
const killLimitMs = 20_000
const pipeLimitMs = 1_000
const stderrBytes = 8 * 1024

interface ProgramCommand {
  readonly command: string
  readonly args?: readonly string[]
  /** Added to the few variables that a program needs to start; nothing else is passed on. */
  readonly env?: Readonly<Record<string, string>>
  /** If not given, a new folder, which is removed after its end. A server gets none. */
  readonly cwd?: string
}

/** What a program is to us: the failure of a server is one of the tools', that of another program is the agent's. */
type ProgramKind = 'server' | 'program'

const failureCodes = { server: 'tool_infra', program: 'agent_failed' } as const

interface ProgramOptions {
  readonly kind: ProgramKind
  readonly name: string
  readonly config: ProgramCommand
  /** How long the program may take to exit once its input has ended; 1.5 s if not given. */
  readonly closeGraceMs?: number
  readonly guard?: ProcessGuard
}

/** A program as a process of ours: nothing that it started is left once `ended` resolves, and nothing outlives us. */
export class Program extends Resource {
  readonly name: string
  readonly pid: number
  readonly stdin: Writable
  readonly stdout: Readable
  /** Resolves when nothing is left of the program, its descendants and its folder, and its output was read to the end. Never rejects. */
  readonly ended: Promise<ProgramExit>

  readonly #kind: ProgramKind
  readonly #command: string
  readonly #folder: string | undefined
  readonly #process: SuspendedProcess
  readonly #tree: ProcessTree
  readonly #guard: ProcessGuard
  readonly #closeGraceMs: number
  readonly #stderr = new TailBuffer(stderrBytes)
  #exit: ProgramExit | undefined
  #leftover: MillraceError | undefined

  private constructor(
    options: ProgramOptions,
    { suspended, tree, folder }: { suspended: SuspendedProcess; tree: ProcessTree; folder: string | undefined },
  ) {
    super()
    this.name = options.name
    this.#kind = options.kind
    this.#folder = folder
    this.pid = suspended.pid
    this.stdin = suspended.stdin
    this.stdout = suspended.stdout
    this.#command = options.config.command
    this.#process = suspended
    this.#tree = tree
    this.#guard = options.guard ?? ProcessGuard.ofThisThread
    this.#closeGraceMs = options.closeGraceMs ?? defaultCloseGraceMs
    suspended.stderr.on('data', (chunk: Buffer) => this.#stderr.push(chunk))
    this.ended = this.#end()
  }

  /** Resolves when the program's command runs. A command that could not run shows in `ended`. */
  static async start(options: ProgramOptions): Promise<Program> {
    const { kind, config, guard = ProcessGuard.ofThisThread } = options
    const tag = guard.nextTag()
    const folder = kind === 'program' ? await guard.makeFolder(tag) : undefined
    const suspended = await suspendedIn(folder, config, tag).catch(async (error: unknown) => {
      await removeFolder(folder)
      throw startFailure(options, error)
    })
    const tree = new ProcessTree(suspended.pid, tag, guard)
    const started = new Program(options, { suspended, tree, folder })
    try {
      await guard.watch(suspended.pid)
    } catch (error) {
      await started.close()
      throw error
    }
    resumeSpawned(suspended)
    return started
  }

  /** Set from the moment the process has exited, which is before `ended`. */
  get exit(): ProgramExit | undefined {
    return this.#exit
  }

  get stderr(): string {
    return this.#stderr.toString()
  }

  /** Why the program is gone; undefined while it runs. */
  get failure(): MillraceError | undefined {
    if (!this.#exit) return undefined
    const { name, stderr } = this
    const { code: exitCode, signal } = this.#exit
    const data = { [this.#kind]: name, exitCode, signal, ...(stderr && { stderr }) }
    return new MillraceError(failureCodes[this.#kind], this.#describeEnd(this.#exit), { data })
  }

  #describeEnd(exit: ProgramExit): string {
    const refused = startRefusal(exit, this.stderr)
    const command = `'${this.#command}'`
    const program = `${this.#kind} '${this.name}'`
    if (refused === 'not found')
      return `there is no command ${command} to start ${program}: install it, or correct "command"`
    if (refused === 'not executable')
      return `the command ${command} of ${program} cannot be executed: check its permissions`
    const how = exit.signal ? `was killed by ${exit.signal}` : `exited with code ${exit.code}`
    const word = lastWord(this.stderr)
    return `${program} ${how}${word ? `; its stderr ended with: ${word}` : ''}`
  }

  /** Ends the program's input; then asks it, with its group, to terminate; then kills it, with all that it started. */
  protected async onClose(): Promise<void> {
    this.#process.resumePipe.destroy()
    this.#noteTree()
    this.stdin.end()
    if (!(await settlesWithin(this.#process.exited, this.#closeGraceMs))) {
      this.#noteTree()
      this.#tree.signalGroup('SIGTERM')
      if (!(await settlesWithin(this.#process.exited, terminateGraceMs))) {
        this.#noteTree()
        this.#tree.signalGroup('SIGKILL')
      }
    }
    if (!(await settlesWithin(this.ended, killLimitMs))) throw this.#stuck()
    if (this.#leftover) throw this.#leftover
  }

  async #end(): Promise<ProgramExit> {
    this.#exit = await this.#process.exited
    try {
      // After a crash nothing can finish in good order, and a new process may be waiting for this to be over.
      if (this.isClosed) await this.#tree.terminate(terminateGraceMs)
      await this.#tree.kill()
      // Until it is told to forget the program, the guard removes the folder if we are killed.
      await removeFolder(this.#folder).finally(async () => await this.#guard.forget(this.pid))
    } catch (error) {
      this.#leftover = MillraceError.from(error, 'tool_infra')
    }
    // A process that hid from us may hold the other end of the pipes.
    if (!(await settlesWithin(this.#process.closed, pipeLimitMs))) {
      this.stdout.destroy()
      this.#process.stderr.destroy()
    }
    return this.#exit
  }

  #noteTree(): void {
    if (!this.#exit) this.#tree.note()
  }

  #stuck(): MillraceError {
    return new MillraceError(
      'tool_infra',
      `the process ${this.pid} of ${this.#kind} '${this.name}' cannot be killed: it hangs in the kernel, see /proc/${this.pid}/stack`,
      { data: { [this.#kind]: this.name, pid: this.pid } },
    )
  }
}

/** What a program writes into its working folder, or among the temporary files, is in this folder, if it has one. */
async function suspendedIn(folder: string | undefined, config: ProgramCommand, tag: string): Promise<SuspendedProcess> {
  const tagged = { [tagVariable]: tag }
  if (folder === undefined) return await spawnSuspended(config, { ...programEnvironment(config.env), ...tagged })
  const [cwd, temporary] = [config.cwd ?? join(folder, 'work'), join(folder, 'tmp')]
  await mkdir(temporary)
  if (config.cwd === undefined) await mkdir(cwd)
  const env = programEnvironment({ TMPDIR: temporary, ...config.env })
  return await spawnSuspended({ ...config, cwd }, { ...env, ...tagged })
}

/** Never rejects: what a program has left behind, files of another user for example, is no fault of its rollout. */
async function removeFolder(folder: string | undefined): Promise<void> {
  if (folder === undefined) return
  const remove = (): Promise<void> => rm(folder, { recursive: true, force: true, maxRetries: 3 })
  await remove()
    // Some write-protect what they made, as Go does with its cache of modules.
    .catch(() => makeWritable(folder).then(remove))
    .catch(() => {})
}

async function makeWritable(folder: string): Promise<void> {
  await chmod(folder, 0o700)
  for (const entry of await readdir(folder, { withFileTypes: true })) {
    if (entry.isDirectory()) await makeWritable(join(folder, entry.name))
  }
}

function startFailure({ kind, name, config: { cwd } }: ProgramOptions, error: unknown): MillraceError {
  const isLost = cwd !== undefined && !existsSync(cwd)
  const why = isLost
    ? `its folder ${cwd} does not exist: correct "cwd"`
    : MillraceError.from(error, 'tool_infra').rawMessage
  return new MillraceError(failureCodes[kind], `${kind} '${name}' could not be started: ${why}`, {
    data: { [kind]: name },
    cause: error,
  })
}

/** The last line that says something: Node writes its stack and its version below the error. */
function lastWord(stderr: string): string | undefined {
  const lines = stderr.trimEnd().split('\n')
  const last = lines.at(-1)
  const isNodesFooter = last !== undefined && /^Node\.js v\d/.test(last)
  return isNodesFooter ? (lines.findLast((line) => /^\w*Error\b.*: /.test(line)) ?? last) : last
}

const passedOn = new Set(
  (
    'PATH HOME USER LOGNAME SHELL TERM LANG LANGUAGE TMPDIR TZ NODE_EXTRA_CA_CERTS SSL_CERT_FILE SSL_CERT_DIR ' +
    'HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY http_proxy https_proxy all_proxy no_proxy'
  ).split(' '),
)

/** A few of our variables and its own: the others hold the keys of models and other servers. */
export function programEnvironment(own: Readonly<Record<string, string>> = {}): Record<string, string> {
  const environment: Record<string, string> = {}
  for (const [name, value] of Object.entries(process.env)) {
    if (value !== undefined && (passedOn.has(name) || name.startsWith('LC_'))) environment[name] = value
  }
  return { ...environment, ...own }
}
