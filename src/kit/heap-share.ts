import { getHeapStatistics } from 'node:v8'

/** The heap that V8 allows itself on a machine, or in a container, with 8 GiB. */
const roomyHeapBytes = 2 * 1024 ** 3

/**
 * A bound in bytes, scaled to the heap of this process: unchanged with 2 GiB and more, and in proportion with less. Caches
 * must not fill the heap of a small container: V8 would spend its time looking for memory to free.
 */
export function heapShare(bytes: number): number {
  return Math.floor(bytes * Math.min(1, getHeapStatistics().heap_size_limit / roomyHeapBytes))
}
