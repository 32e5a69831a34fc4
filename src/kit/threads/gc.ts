import { getHeapStatistics, setFlagsFromString } from 'node:v8'

/** Flags for V8's collector hold for the whole process, so only its owner sets them: the command line, never the library. */

/** Whether this is the V8 of Node 24. V8 complains about unknown flags, and other versions do not know all of these. */
const isOfNode24 = process.versions.v8.startsWith('13.')

export function settleHeapForRollouts(): void {
  settleHeap()
  // Collects when the heap is twice what was alive: the objects of a rollout, neither young nor old, die when it ends.
  // Collecting still earlier saves little more memory and takes cores from the loop.
  setFlagsFromString('--heap-growing-percent=100')
}

export function settleHeapForGateway(): void {
  settleHeap()
  // Weighs buffers together with the heap. Otherwise V8 collects everything whenever 64 MB of them have come, which took two
  // fifths of the CPU in sessions of 50 turns. With the V8 of Node 26 it saves nothing.
  if (isOfNode24) setFlagsFromString('--external-memory-accounted-in-global-limit')
}

function settleHeap(): void {
  // Keeps V8 from making lists straight among old objects, where they outlive their request until the whole heap is
  // collected: that took a fifth of the gateway's CPU.
  setFlagsFromString('--no-allocation-site-pretenuring')
  // Keeps V8 from throwing away compiled code after eight idle seconds: a server between two requests has no objects of a
  // request, and its next thousands took half as much CPU again. From Node 26 on the flag turns off collecting in pauses.
  setFlagsFromString(isOfNode24 ? '--no-memory-reducer-favors-memory' : '--no-memory-reducer')
}

/** The heap that V8 allows itself on a machine, or in a container, with 8 GiB. */
const roomyHeapBytes = 2 * 1024 ** 3

/** A bound scaled to the heap of this process if that is below 2 GiB: caches must not fill a small container. */
export function heapShare(bytes: number): number {
  return Math.floor(bytes * Math.min(1, getHeapStatistics().heap_size_limit / roomyHeapBytes))
}
