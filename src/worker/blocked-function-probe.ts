import { Worker } from 'node:worker_threads'
import { startVariables, workerUrl } from '../kit/index.ts'

/** Where a worker process is given the pipe of its probe: after the three standard streams and the channel of `fork`. */
export const probeDescriptor = 4

export interface ProbeAnswer {
  readonly question: number
  readonly name?: string
}

/**
 * In a worker process: lets the supervisor ask what the main thread is stuck in. A thread of its own answers, over a pipe
 * of its own, because the main thread, and with it every other way into the process, is the one that does not answer. No
 * port is opened, so nobody else can ask.
 */
export function offerProbe(): void {
  const thread = new Worker(workerUrl(import.meta, './blocked-function-thread'), {
    name: 'millrace-probe',
    env: startVariables(),
    // It holds a socket and a few functions.
    resourceLimits: { maxOldGenerationSizeMb: 32, maxYoungGenerationSizeMb: 2 },
  })
  // Without it a blocked function goes unnamed; nothing else depends on it.
  thread.on('error', () => {})
  thread.unref()
}
