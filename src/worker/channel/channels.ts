import { type ChildProcess, fork } from 'node:child_process'
import type { Readable, Writable } from 'node:stream'
import { fileURLToPath } from 'node:url'
import type { MessagePort, ResourceLimits } from 'node:worker_threads'
import type { WireError } from '../../errors/index.ts'
import { startVariables, Thread, settlesWithin, workerUrl } from '../../kit/index.ts'
import type { ThreadData } from '../inside/supervisor-link.ts'
import type {
  ChannelOptions,
  FromProcess,
  FromThread,
  FromWorker,
  ToProcess,
  ToThread,
  ToWorker,
  WorkerChannel,
  WorkerHeap,
} from './channel.ts'

export class ThreadChannel implements WorkerChannel {
  readonly kind = 'thread'
  readonly exited: Promise<string>
  readonly thread: Thread<ToThread>

  constructor({ id, start, heap, journal, lease: takeLease, onMessage }: ChannelOptions) {
    const lease = takeLease((grant) => this.thread.postMessage({ kind: 'limits', grant }))
    const data: ThreadData = { id, start, journal, limits: lease.handle }
    this.thread = new Thread(workerUrl(import.meta, '../inside/entry'), {
      name: `millrace-worker-${id}`,
      workerData: data,
      transferList: [journal],
      resourceLimits: resourceLimitsOf(heap),
    })
    this.thread.on('message', (message: FromThread) => {
      if (message.kind === 'limits') lease.receive(message.lease)
      else onMessage(message)
    })
    this.exited = this.thread.ended.then(({ message }) => message)
  }

  post(message: ToWorker): void {
    this.thread.postMessage(message)
  }

  kill(): void {
    this.thread.removeAllListeners('message')
    void this.thread.terminate()
  }
}

function resourceLimitsOf({ maxOldGenerationMb, maxYoungGenerationMb }: WorkerHeap): ResourceLimits {
  return {
    ...(maxOldGenerationMb !== undefined && { maxOldGenerationSizeMb: maxOldGenerationMb }),
    ...(maxYoungGenerationMb !== undefined && { maxYoungGenerationSizeMb: maxYoungGenerationMb }),
  }
}

/** How long the last messages, still in the pipe at the exit, are waited for: a grandchild may keep the pipe open. */
const crashReportMs = 1_000

/** A young generation is three of V8's semi-spaces. */
const semiSpaces = 3

export class ProcessChannel implements WorkerChannel {
  readonly kind = 'process'
  readonly exited: Promise<string>
  readonly #child: ChildProcess
  readonly #journal: MessagePort
  readonly #lease: ReturnType<ChannelOptions['lease']>
  readonly #onMessage: (message: FromWorker) => void

  constructor({ id, start, heap, journal, lease, onMessage }: ChannelOptions) {
    this.#journal = journal
    this.#onMessage = onMessage
    const flags = heapFlags(heap)
    this.#child = fork(fileURLToPath(workerUrl(import.meta, '../inside/entry')), {
      serialization: 'advanced',
      env: startVariables(),
      // Passed on, not inherited, as this process's own may be held back. See `endWithSupervisor` for the last pipe.
      stdio: ['ignore', 'pipe', 'pipe', 'ipc', 'pipe'],
      ...(flags.length > 0 && { execArgv: [...process.execArgv, ...flags] }),
    })
    const { stdout, stderr } = this.#child
    if (stdout) passOn(stdout, process.stdout)
    if (stderr) passOn(stderr, process.stderr)
    this.exited = this.#watch()
    this.#child.on('message', this.#onFrame)
    // The writer's answers go back to the worker.
    journal.on('message', (failure: WireError | null) => this.#tell({ kind: 'journal-answer', failure }))
    journal.on('close', () => this.#tell({ kind: 'journal-closed' }))
    this.#lease = lease((grant) => this.#tell({ kind: 'limits', grant }))
    this.#tell({ kind: 'start', id, start, limits: this.#lease.handle })
  }

  post(message: ToWorker): void {
    this.#tell(message)
  }

  kill(): void {
    this.#child.off('message', this.#onFrame)
    this.#journal.close()
    this.#child.kill('SIGKILL')
  }

  readonly #onFrame = (frame: unknown): void => {
    const message = frame as FromProcess
    if (message.kind === 'journal') this.#journal.postMessage(message.entries)
    else if (message.kind === 'journal-close') this.#journal.close()
    else if (message.kind === 'limits') this.#lease.receive(message.lease)
    else this.#onMessage(message)
  }

  #tell(message: ToProcess): void {
    // If the process is gone, `exited` shows it.
    if (this.#child.connected) this.#child.send(message, () => {})
  }

  #watch(): Promise<string> {
    const child = this.#child
    const disconnected = new Promise<void>((resolve) => child.once('disconnect', () => resolve()))
    const { promise, resolve } = Promise.withResolvers<string>()
    // `error` also stands for a signal or a message that could not be sent. Only a process that was never started has no exit.
    child.on('error', (error) => {
      if (child.pid === undefined) resolve(`it could not be started: ${error.message}`)
    })
    child.once('exit', (code, signal) => {
      const how = signal === null ? `it exited with code ${code}` : `it was ended by ${signal}`
      void settlesWithin(disconnected, crashReportMs).then(() => resolve(how))
    })
    return promise.finally(() => this.#journal.close())
  }
}

function heapFlags({ maxOldGenerationMb, maxYoungGenerationMb }: WorkerHeap): string[] {
  const flags: string[] = []
  if (maxOldGenerationMb !== undefined) flags.push(`--max-old-space-size=${maxOldGenerationMb}`)
  if (maxYoungGenerationMb !== undefined) {
    flags.push(`--max-semi-space-size=${Math.max(1, Math.floor(maxYoungGenerationMb / semiSpaces))}`)
  }
  return flags
}

/** For each target, the sources that wait for it to take more. At most one per worker. */
const heldBack = new WeakMap<Writable, Set<Readable>>()

/** Like `pipe`, but with one listener on the target at most, because many workers share a target. */
export function passOn(source: Readable, target: Writable): void {
  source.on('data', (chunk: Buffer) => {
    if (!target.write(chunk)) holdBack(source, target)
  })
}

function holdBack(source: Readable, target: Writable): void {
  source.pause()
  const waiting = heldBack.get(target)
  if (waiting) {
    waiting.add(source)
    return
  }
  const sources = new Set([source])
  heldBack.set(target, sources)
  target.once('drain', () => {
    heldBack.delete(target)
    for (const each of sources) each.resume()
  })
}
