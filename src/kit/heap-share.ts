import { getHeapStatistics } from 'node:v8'

/** What V8 allows itself on a machine, or in a container, with 8 GiB. */
const roomyHeapBytes = 2 * 1024 ** 3

/**
 * A bound of memory for the heap that this process may have: what it says with 2 GiB and more, and in proportion with less. What is
 * kept for later must not fill the heap of a small container: V8 would spend its time looking for what it may free.
 */
export function heapShare(bytes: number): number {
  return Math.floor(bytes * Math.min(1, getHeapStatistics().heap_size_limit / roomyHeapBytes))
}
