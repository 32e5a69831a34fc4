/** The arrays that numbers travel in. */
export type NumberArray = Uint8Array | Int16Array | Int32Array | Float32Array

/** The name of an array's type in formats that others read: NumPy takes it as it is. */
export function dtypeOf(numbers: NumberArray): 'uint8' | 'int16' | 'int32' | 'float32' {
  if (numbers instanceof Int32Array) return 'int32'
  if (numbers instanceof Float32Array) return 'float32'
  return numbers instanceof Int16Array ? 'int16' : 'uint8'
}

/** The memory of an array as bytes, without a copy; little-endian, as on every machine that this runs on. */
export function bytesOf({ buffer, byteOffset, byteLength }: NumberArray): Uint8Array {
  return new Uint8Array(buffer, byteOffset, byteLength)
}
