import { getCompileCacheDir } from 'node:module'
import { dirname, extname } from 'node:path'
import { type Transferable, Worker, type WorkerOptions } from 'node:worker_threads'
import { MillraceError } from '../../errors/index.ts'
import { settlesWithin } from '../async/lifecycle.ts'

/** A thread, as the thread that started it holds it. `To` is what it can be told. */
export class Thread<To = never> extends Worker {
  /** Resolves to why the thread ended, once it is gone and all its messages were received. Never rejects. */
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
    if (!(await settlesWithin(this.ended, graceMs))) await this.terminate()
  }
}

/** What a thread did not catch can be any value, `null` as well. */
function reasonOf(thrown: unknown): Error {
  const isOutOfMemory = thrown instanceof Error && 'code' in thrown && thrown.code === 'ERR_WORKER_OUT_OF_MEMORY'
  const message = isOutOfMemory ? 'it ran out of memory' : MillraceError.from(thrown, 'internal').rawMessage
  return new Error(message, { cause: thrown })
}

/** The compiler rewrites `.ts` in imports but not in `new URL(...)`, so the extension is taken from the file that asks. */
export function workerUrl(meta: ImportMeta, name: string): URL {
  return new URL(name + extname(meta.filename), meta.url)
}

/** Marks that the compile cache's folder was named by us. */
const mark = 'MILLRACE_COMPILE_CACHE'

/**
 * The variables for a thread or process that is started, with the folder of this one's compile cache. It is not set for
 * ourselves: programs of environments would inherit it, and V8 reports less coverage for code from the cache.
 */
export function startVariables(): NodeJS.ProcessEnv {
  const folder = getCompileCacheDir()
  if (folder === undefined || process.env['NODE_COMPILE_CACHE'] !== undefined) return process.env
  return { ...process.env, NODE_COMPILE_CACHE: dirname(folder), [mark]: '1' }
}

/** Removes our variables before a user's code is loaded; Node has read them by then. */
export function dropStartVariables(): void {
  if (process.env[mark] === undefined) return
  delete process.env['NODE_COMPILE_CACHE']
  delete process.env[mark]
}

interface Sharers {
  readonly onMachine: number
  readonly inProcess: number
}

let sharers: Sharers = { onMachine: 1, inProcess: 1 }

/** Called by a worker as it starts, before it loads anything that asks for its share. */
export function shareWith(others: Sharers): void {
  sharers = others
}

/** This worker's part, one at least, of what all workers of a run may have together, on threads or in processes. */
export function machineShare(whole: number): number {
  return part(whole, sharers.onMachine)
}

export function processShare(whole: number): number {
  return part(whole, sharers.inProcess)
}

function part(whole: number, among: number): number {
  return Math.max(1, Math.floor(whole / among))
}
