import { setFlagsFromString } from 'node:v8'

/*
 * How V8 collects. These hold for the whole process, so they are for whoever owns the process to say: the command line does, a
 * library does not.
 */

/** That of Node 24. V8 complains about flags that it does not know, and other versions do not know all of these. */
const isOfNode24 = process.versions.v8.startsWith('13.')

/** For a process that runs rollouts. */
export function settleHeapForRollouts(): void {
  letGarbageDieYoung()
  keepCodeThroughPauses()
  collectEarly()
}

/** For a process that passes bodies on. */
export function settleHeapForGateway(): void {
  letGarbageDieYoung()
  keepCodeThroughPauses()
  weighBuffersWithHeap()
}

/**
 * Tells V8 to collect when the heap is twice what was alive instead of letting it grow further. A run makes much
 * garbage that is neither young nor old: what belongs to a rollout dies when the rollout ends, seconds later. Earlier than this
 * saves little more memory, and each such collection has threads that take the cores from the loop.
 */
function collectEarly(): void {
  setFlagsFromString('--heap-growing-percent=100')
}

/**
 * Lets V8 weigh buffers together with its heap. Else it begins to collect everything whenever 64 MB of them have come, though
 * nearly all are garbage that the next young collection frees. In sessions of 50 turns it took two fifths of the gateway's CPU.
 * It costs memory under load. With the V8 of Node 26 it saves nothing.
 */
function weighBuffersWithHeap(): void {
  if (isOfNode24) setFlagsFromString('--external-memory-accounted-in-global-limit')
}

/**
 * Keeps V8 from making lists straight among old objects, as it does where those made in the same place have lived for long.
 * There they outlive their request, and all that they hold with them, until the whole heap is collected. Of what the gateway
 * made for a request of a session a quarter did, and collecting that took a fifth of its CPU.
 */
function letGarbageDieYoung(): void {
  setFlagsFromString('--no-allocation-site-pretenuring')
}

/**
 * Keeps V8 from throwing away compiled code when there is nothing to do. After eight seconds in which little was allocated it
 * collects everything, and by default in the way that is meant for a machine short of memory: shapes of objects go of which none
 * is alive at that moment, and with them all code that was compiled for these shapes. A server between two requests has no
 * request. Its next thousands then took half as much CPU again. It still collects, but leaves the shapes. Where V8 knows no
 * such way any more, from Node 26 on, it does not collect in pauses.
 */
function keepCodeThroughPauses(): void {
  setFlagsFromString(isOfNode24 ? '--no-memory-reducer-favors-memory' : '--no-memory-reducer')
}
