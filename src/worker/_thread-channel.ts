import { type ResourceLimits, Worker } from 'node:worker_threads'
import { startVariables, workerUrl } from '../kit/index.ts'
import type { ThreadData } from './_supervisor-link.ts'
import type { BlockedTarget } from './blocked-function.ts'
import type { ChannelOptions, WorkerChannel, WorkerHeap } from './worker-channel.ts'
import type { ToWorker } from './worker-messages.ts'

export class ThreadChannel implements WorkerChannel {
  readonly kind = 'thread'
  readonly target: BlockedTarget
  readonly exited: Promise<string>
  readonly #worker: Worker

  constructor({ id, start, heap, journal, limits, onMessage }: ChannelOptions) {
    const data: ThreadData = { id, start, journal, limits: limits.handle() }
    const worker = new Worker(workerUrl(import.meta, './_worker-entry'), {
      name: `millrace-worker-${id}`,
      workerData: data,
      env: startVariables(),
      transferList: [journal],
      resourceLimits: resourceLimitsOf(heap),
    })
    let error: Error | undefined
    worker.on('message', onMessage)
    worker.on('error', (thrown) => (error = thrown))
    this.exited = new Promise((resolve) => {
      // Node delivers all messages that were sent before it emits `exit`.
      worker.once('exit', (code) => resolve(error ? describe(error) : `it exited with code ${code}`))
    })
    this.target = { kind: 'thread', worker }
    this.#worker = worker
  }

  post(message: ToWorker): void {
    this.#worker.postMessage(message)
  }

  kill(): void {
    this.#worker.removeAllListeners('message')
    void this.#worker.terminate()
  }
}

function resourceLimitsOf({ maxOldGenerationMb, maxYoungGenerationMb }: WorkerHeap): ResourceLimits {
  return {
    ...(maxOldGenerationMb !== undefined && { maxOldGenerationSizeMb: maxOldGenerationMb }),
    ...(maxYoungGenerationMb !== undefined && { maxYoungGenerationSizeMb: maxYoungGenerationMb }),
  }
}

function describe(error: Error & { code?: string }): string {
  return error.code === 'ERR_WORKER_OUT_OF_MEMORY' ? 'it ran out of memory' : error.message
}
