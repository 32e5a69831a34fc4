/** Routed experts in JSON. */
export interface ExpertsText {
  readonly shape: readonly number[]
  readonly dtype: 'uint8' | 'int16' | 'int32'
  /** The little-endian numbers, base64. */
  readonly data: string
}

/** A `RoutedExperts`, whatever memory it is in. */
interface ExpertNumbers {
  readonly shape: readonly number[]
  readonly experts: Uint8Array | Int16Array | Int32Array
}

/**
 * The form that model servers use and `RoutedExperts` are read from: NumPy's `frombuffer` takes `dtype` and the decoded data as
 * they are.
 */
export function expertsText({ shape, experts }: ExpertNumbers): ExpertsText {
  const dtype = experts instanceof Uint8Array ? 'uint8' : experts instanceof Int16Array ? 'int16' : 'int32'
  const bytes = Buffer.from(experts.buffer, experts.byteOffset, experts.byteLength)
  return { shape, dtype, data: bytes.toString('base64') }
}
