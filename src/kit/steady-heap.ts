import { setFlagsFromString } from 'node:v8'

/**
 * Tells V8 to collect when the heap has grown by 40% instead of letting it grow to several times what is alive. A run
 * makes much garbage that is neither young nor old: what belongs to a rollout dies when the rollout ends, seconds later.
 * Measured at concurrency 1,000: peak memory 460 -> 350 MB, longest collection 76 -> 28 ms, CPU the same. It holds for
 * the whole process, so it is for whoever owns the process to say: the command line does, a library does not.
 */
export function keepHeapSteady(): void {
  setFlagsFromString('--heap-growing-percent=40')
}
