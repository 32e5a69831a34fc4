import type { ResourceLimits } from 'node:worker_threads'
import { Thread, workerUrl } from '../kit/index.ts'
import type { ThreadData } from './_supervisor-link.ts'
import type { BlockedTarget } from './blocked-function.ts'
import type { ChannelOptions, WorkerChannel, WorkerHeap } from './worker-channel.ts'
import type { ToWorker } from './worker-messages.ts'

export class ThreadChannel implements WorkerChannel {
  readonly kind = 'thread'
  readonly target: BlockedTarget
  readonly exited: Promise<string>
  readonly #thread: Thread<ToWorker>

  constructor({ id, start, heap, journal, limits, onMessage }: ChannelOptions) {
    const data: ThreadData = { id, start, journal, limits: limits.handle() }
    this.#thread = new Thread(workerUrl(import.meta, './_worker-entry'), {
      name: `millrace-worker-${id}`,
      workerData: data,
      transferList: [journal],
      resourceLimits: resourceLimitsOf(heap),
    })
    this.#thread.on('message', onMessage)
    this.exited = this.#thread.ended.then(({ message }) => message)
    this.target = { kind: 'thread', worker: this.#thread }
  }

  post(message: ToWorker): void {
    this.#thread.postMessage(message)
  }

  kill(): void {
    this.#thread.removeAllListeners('message')
    void this.#thread.terminate()
  }
}

function resourceLimitsOf({ maxOldGenerationMb, maxYoungGenerationMb }: WorkerHeap): ResourceLimits {
  return {
    ...(maxOldGenerationMb !== undefined && { maxOldGenerationSizeMb: maxOldGenerationMb }),
    ...(maxYoungGenerationMb !== undefined && { maxYoungGenerationSizeMb: maxYoungGenerationMb }),
  }
}
