import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { request } from 'undici'
import { freePort } from '../../test/support/kit/free-port.ts'

/** Four times what a shell allows by default, and enough for 1,024 clients with a connection to the backend each. */
const maxDescriptors = 4_096
const adminKey = 'bench-admin-key-of-no-value'
const maxGroupSize = 1_024
const millraceProgram = join(import.meta.dirname, '../../bin/millrace.js')

/** A server as its users start it, in a process of its own that may open 4,096 files. */
class Subject implements AsyncDisposable {
  readonly #command: readonly string[]
  readonly #process: ChildProcess

  constructor(command: readonly string[], env: Readonly<Record<string, string>>) {
    this.#command = command
    const limited = ['-c', `ulimit -n ${maxDescriptors}; exec "$0" "$@"`, process.execPath, ...command]
    this.#process = spawn('sh', limited, {
      // A line for each request goes to standard error.
      stdio: ['ignore', 'pipe', 'ignore'],
      env: { ...process.env, ...env },
      cwd: tmpdir(),
    })
  }

  get pid(): number {
    return this.#process.pid ?? 0
  }

  /** What the first line says that matches; the rest of the output is dropped. */
  async line(pattern: RegExp): Promise<string> {
    const { stdout } = this.#process
    if (!stdout) throw new Error('the subject has no stdout')
    try {
      for await (const line of createInterface({ input: stdout })) {
        const match = pattern.exec(line)
        if (match) return match[1] ?? line
      }
    } finally {
      stdout.resume()
    }
    throw new Error(`a subject did not start; see what it says: node ${this.#command.join(' ')}`)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#process.exitCode !== null || this.#process.signalCode !== null) return
    this.#process.kill('SIGTERM')
    await once(this.#process, 'exit')
  }
}

/** `millrace gateway` with nothing but a backend, a port and a folder said to it. */
export class MillraceSubject implements AsyncDisposable {
  readonly origin: string
  readonly pid: number
  readonly headers = { 'content-type': 'application/json', authorization: `Bearer ${adminKey}` }
  readonly #owned: AsyncDisposableStack

  private constructor(origin: string, pid: number, owned: AsyncDisposableStack) {
    this.origin = origin
    this.pid = pid
    this.#owned = owned
  }

  static async start(backend: string): Promise<MillraceSubject> {
    await using owned = new AsyncDisposableStack()
    const folder = await mkdtemp(join(tmpdir(), 'millrace-bench-'))
    owned.defer(() => rm(folder, { recursive: true, force: true }))
    const command = [millraceProgram, 'gateway', '--backend', backend, '--port', '0', '--runs', folder]
    const subject = owned.use(new Subject(command, { MILLRACE_ADMIN_KEY: adminKey }))
    const origin = await subject.line(/gateway on (\S+)/)
    return new MillraceSubject(origin, subject.pid, owned.move())
  }

  /** The keys of as many new sessions. */
  async sessions(count: number): Promise<{ readonly id: string; readonly key: string }[]> {
    const sessions: { id: string; key: string }[] = []
    while (sessions.length < count) {
      const groupSize = Math.min(maxGroupSize, count - sessions.length)
      const { body } = await request(`${this.origin}/v1/sessions`, {
        method: 'POST',
        headers: this.headers,
        body: JSON.stringify({ groupSize }),
      })
      const started = (await body.json()) as { sessions: { id: string; key: string }[] }
      sessions.push(...started.sessions)
    }
    return sessions
  }

  /** How many replies are on record in a session. */
  async recorded(id: string): Promise<number> {
    const { body } = await request(`${this.origin}/v1/sessions/${id}`, { headers: this.headers })
    const { interactions } = (await body.json()) as { interactions: number }
    return interactions
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#owned.disposeAsync()
  }
}

/** `npx @portkey-ai/gateway`, told with each request where the backend is. */
export class PortkeySubject implements AsyncDisposable {
  readonly origin: string
  readonly pid: number
  readonly headers: Readonly<Record<string, string>>
  readonly #subject: Subject

  private constructor(origin: string, subject: Subject, backend: string) {
    this.origin = origin
    this.pid = subject.pid
    this.headers = {
      'content-type': 'application/json',
      authorization: 'Bearer none',
      'x-portkey-provider': 'openai',
      'x-portkey-custom-host': backend,
    }
    this.#subject = subject
  }

  static async start(backend: string): Promise<PortkeySubject> {
    const port = await freePort()
    const program = fileURLToPath(import.meta.resolve('@portkey-ai/gateway/build/start-server.js'))
    const subject = new Subject([program, `--port=${port}`], {})
    await subject.line(/Ready/)
    return new PortkeySubject(`http://127.0.0.1:${port}`, subject, backend)
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#subject[Symbol.asyncDispose]()
  }
}
