import { type ChildProcess, fork } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import type { MessagePort } from 'node:worker_threads'
import type { WireError } from '../errors/index.ts'
import { startVariables, within, workerUrl } from '../kit/index.ts'
import { passOn } from './_pass-on.ts'
import type { FromProcess, ToProcess } from './_process-frames.ts'
import type { BlockedTarget } from './blocked-function.ts'
import type { ChannelOptions, LimitsPlace, WorkerChannel, WorkerHeap } from './worker-channel.ts'
import type { FromWorker, ToWorker } from './worker-messages.ts'

/** How long the last messages, still in the pipe at the exit, are waited for: a grandchild may keep the pipe open. */
const lastWordsMs = 1_000

/** A young generation is three of V8's semi-spaces. */
const semiSpaces = 3

export class ProcessChannel implements WorkerChannel {
  readonly kind = 'process'
  readonly exited: Promise<string>
  readonly #child: ChildProcess
  readonly #journal: MessagePort
  readonly #lease: ReturnType<LimitsPlace['lease']>
  readonly #onMessage: (message: FromWorker) => void

  constructor({ id, start, heap, journal, limits, onMessage }: ChannelOptions) {
    this.#journal = journal
    this.#onMessage = onMessage
    const flags = heapFlags(heap)
    this.#child = fork(fileURLToPath(workerUrl(import.meta, './_worker-entry')), {
      serialization: 'advanced',
      env: startVariables(),
      // Output is not inherited but passed on to this process's own, which may be held back. The last pipe is the probe's.
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
    this.#lease = limits.lease((grant) => this.#tell({ kind: 'limits', grant }))
    this.#tell({ kind: 'start', id, start, limits: this.#lease.handle })
  }

  get target(): BlockedTarget {
    return { kind: 'process', child: this.#child }
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
    if (message.kind === 'journal') this.#journal.postMessage(message.batch, message.transfer)
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
      void within(disconnected, lastWordsMs).then(() => resolve(how))
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
