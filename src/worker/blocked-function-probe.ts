import { Thread, workerUrl } from '../kit/index.ts'

/** The descriptor of the probe's pipe in a worker process: after the three standard streams and the channel of `fork`. */
export const probeDescriptor = 4

export interface BlockedFunctionAnswer {
  readonly question: number
  readonly name?: string
}

/**
 * Called in a worker process. Lets the supervisor ask what the main thread is stuck in. A separate thread answers over a
 * separate pipe, because the main thread, and with it every other way into the process, is the one that does not answer. No
 * port is opened, so nobody else can ask.
 */
export function offerProbe(): void {
  const thread = new Thread(workerUrl(import.meta, './blocked-function-thread'), {
    name: 'millrace-probe',
    // The thread needs little: a socket and a few functions.
    resourceLimits: { maxOldGenerationSizeMb: 32, maxYoungGenerationSizeMb: 2 },
  })
  // If the thread fails, blocked functions go unnamed; nothing else depends on it.
  thread.unref()
}
