import { setFlagsFromString } from 'node:v8'

/*
 * Flags for V8's garbage collector. They hold for the whole process, so only its owner may set them: the command line does, a
 * library does not.
 */

/** Whether this is the V8 of Node 24. V8 complains about unknown flags, and other versions do not know all of these. */
const isOfNode24 = process.versions.v8.startsWith('13.')

/** Sets the flags for a process that runs rollouts. */
export function settleHeapForRollouts(): void {
  letGarbageDieYoung()
  keepCodeThroughPauses()
  collectEarly()
}

/** Sets the flags for a process that passes bodies on. */
export function settleHeapForGateway(): void {
  letGarbageDieYoung()
  keepCodeThroughPauses()
  weighBuffersWithHeap()
}

/**
 * Tells V8 to collect when the heap is twice what was alive instead of letting it grow further. A run makes much garbage that
 * is neither young nor old: the objects of a rollout die when the rollout ends, seconds later. Collecting still earlier saves
 * little more memory, and each such collection has threads that take the cores from the loop.
 */
function collectEarly(): void {
  setFlagsFromString('--heap-growing-percent=100')
}

/**
 * Lets V8 weigh buffers together with its heap. Otherwise it begins to collect everything whenever 64 MB of them have come,
 * though nearly all are garbage that the next young collection frees: in sessions of 50 turns that took two fifths of the
 * gateway's CPU. The flag costs memory under load. With the V8 of Node 26 it saves nothing.
 */
function weighBuffersWithHeap(): void {
  if (isOfNode24) setFlagsFromString('--external-memory-accounted-in-global-limit')
}

/**
 * Keeps V8 from making lists straight among old objects, as it does if lists made by the same code have lived for long. There
 * they outlive their request, with all that they hold, until the whole heap is collected. That was a quarter of what the
 * gateway made for a request of a session, and collecting it took a fifth of its CPU.
 */
function letGarbageDieYoung(): void {
  setFlagsFromString('--no-allocation-site-pretenuring')
}

/**
 * Keeps V8 from throwing away compiled code when there is nothing to do. After eight seconds in which little was allocated it
 * collects everything, and by default in the way that is meant for a machine short of memory: it drops shapes of which no
 * object is alive at that moment, and with them all code that was compiled for these shapes. A server between two requests
 * has no objects of a request; its next thousands then took half as much CPU again. With the flag V8 still collects, but
 * keeps the shapes. From Node 26 on V8 has no such way: there the flag turns off collecting in pauses.
 */
function keepCodeThroughPauses(): void {
  setFlagsFromString(isOfNode24 ? '--no-memory-reducer-favors-memory' : '--no-memory-reducer')
}
