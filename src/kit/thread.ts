import { type Transferable, Worker, type WorkerOptions } from 'node:worker_threads'
import { MillraceError } from '../errors/index.ts'
import { startVariables } from './start-variables.ts'
import { within } from './within.ts'

/** A thread, as the thread that started it holds it. `To` is what it can be told. */
export class Thread<To = never> extends Worker {
  /** Resolves to why the thread ended, once it is gone and everything it said was heard. Never rejects. */
  readonly ended: Promise<Error>

  constructor(entry: URL, options: Omit<WorkerOptions, 'env'>) {
    super(entry, { ...options, env: startVariables() })
    let thrown: { readonly value: unknown } | undefined
    // Without a listener an error would end this process.
    this.on('error', (value: unknown) => (thrown = { value }))
    this.ended = new Promise((resolve) => {
      // Node delivers all messages that were sent, and the error if there was one, before it emits `exit`.
      this.once('exit', (code) => resolve(thrown ? reasonOf(thrown.value) : new Error(`it exited with code ${code}`)))
    })
  }

  override postMessage(message: To, transfer?: readonly Transferable[]): void {
    super.postMessage(message, transfer)
  }

  /** Sends the message that asks the thread to end, and terminates the thread if it is still there after `graceMs`. */
  async end(request: To, graceMs: number): Promise<void> {
    this.postMessage(request)
    if (!(await within(this.ended, graceMs))) await this.terminate()
  }
}

/** What a thread did not catch can be any value, `null` as well. */
function reasonOf(thrown: unknown): Error {
  const isOutOfMemory = thrown instanceof Error && 'code' in thrown && thrown.code === 'ERR_WORKER_OUT_OF_MEMORY'
  const message = isOutOfMemory ? 'it ran out of memory' : MillraceError.from(thrown, 'internal').rawMessage
  return new Error(message, { cause: thrown })
}
