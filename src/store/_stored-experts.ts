import type { RoutedExperts } from '../schema/index.ts'

/** The shape and type of routed experts: kept as JSON beside their bytes, which may be of several types. */
export interface StoredExperts {
  readonly shape: readonly number[]
  readonly bytesEach: number
}

export function describeExperts({ shape, experts }: RoutedExperts): StoredExperts {
  return { shape, bytesEach: experts.BYTES_PER_ELEMENT }
}

export function restoreExperts({ shape, bytesEach }: StoredExperts, bytes: ArrayBuffer): RoutedExperts {
  switch (bytesEach) {
    case 1:
      return { shape, experts: new Uint8Array(bytes) }
    case 2:
      return { shape, experts: new Int16Array(bytes) }
    default:
      return { shape, experts: new Int32Array(bytes) }
  }
}
