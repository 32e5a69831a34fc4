import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'

/** A process of the benchmark's own, told what to do in JSON and answering in JSON lines. */
export class BenchChild implements AsyncDisposable {
  readonly #process: ChildProcess
  readonly #lines: AsyncIterator<string>

  /** With `maxDescriptors`, a shell lowers or raises the limit on open files first. */
  constructor(
    file: URL,
    input: unknown,
    { nodeArguments = [], maxDescriptors }: { nodeArguments?: readonly string[]; maxDescriptors?: number } = {},
  ) {
    const words = ['--no-warnings', ...nodeArguments, fileURLToPath(file), JSON.stringify(input)]
    const limited = ['-c', `ulimit -n ${maxDescriptors}; exec "$0" "$@"`, process.execPath, ...words]
    const [program, all] = maxDescriptors === undefined ? [process.execPath, words] : ['sh', limited]
    this.#process = spawn(program, all, { stdio: ['ignore', 'pipe', 'inherit'] })
    const { stdout } = this.#process
    if (!stdout) throw new Error('the child has no stdout')
    this.#lines = createInterface({ input: stdout })[Symbol.asyncIterator]()
  }

  get pid(): number {
    return this.#process.pid ?? 0
  }

  async answer<Answer>(): Promise<Answer> {
    const line = await this.#lines.next()
    if (line.done) throw new Error(`the child ended with ${this.#process.exitCode ?? this.#process.signalCode}`)
    return JSON.parse(line.value) as Answer
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#process.exitCode !== null || this.#process.signalCode !== null) return
    this.#process.kill('SIGTERM')
    await once(this.#process, 'exit')
  }
}
