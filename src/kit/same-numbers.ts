/** Compared as bytes, which is many times faster than number by number. */
export function sameNumbers(first: Int32Array, second: Int32Array): boolean {
  if (first.length !== second.length) return false
  // The prompts of one conversation lie in the same memory.
  if (first.buffer === second.buffer && first.byteOffset === second.byteOffset) return true
  return Buffer.compare(bytesOf(first), bytesOf(second)) === 0
}

function bytesOf(numbers: Int32Array): Uint8Array {
  return new Uint8Array(numbers.buffer, numbers.byteOffset, numbers.byteLength)
}
