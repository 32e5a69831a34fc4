import { bytesOf } from './array-bytes.ts'

/** Whether two arrays have the same numbers. Comparing bytes is many times faster than comparing number by number. */
export function sameNumbers(first: Int32Array, second: Int32Array): boolean {
  if (first.length !== second.length) return false
  // The prompts of one conversation share their memory.
  if (first.buffer === second.buffer && first.byteOffset === second.byteOffset) return true
  return Buffer.compare(bytesOf(first), bytesOf(second)) === 0
}
