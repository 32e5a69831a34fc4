/** A 32-bit hash of text and numbers (FNV-1a, then mixed): the same on every machine, for choices that must repeat. */
export function hash32(...parts: readonly (string | number)[]): number {
  let hash = 0x811c9dc5
  for (const part of parts) {
    const text = typeof part === 'string' ? part : String(part)
    for (let index = 0; index < text.length; index += 1) {
      hash = Math.imul(hash ^ text.charCodeAt(index), 0x01000193)
    }
    // A separator, so that ('ab', 'c') and ('a', 'bc') differ.
    hash = Math.imul(hash ^ 0x1f, 0x01000193)
  }
  return mix32(hash)
}

/** A seed made of another one and what it is for. It fits a signed 32-bit integer. */
export function derivedSeed(seed: number, ...use: readonly (string | number)[]): number {
  return hash32(seed, ...use) >>> 1
}

/** A repeatable sequence of numbers in [0, 1) from one seed. */
export function seededRandom(seed: number): () => number {
  let state = seed >>> 0
  return () => {
    state = (state + 0x9e3779b9) >>> 0
    return mix32(state) / 0x1_0000_0000
  }
}

export function mix32(value: number): number {
  let mixed = value
  mixed = Math.imul(mixed ^ (mixed >>> 16), 0x21f0aaad)
  mixed = Math.imul(mixed ^ (mixed >>> 15), 0x735a2d97)
  return (mixed ^ (mixed >>> 15)) >>> 0
}

/** A sum of decimals as a person would write it: 0.7 + 0.2 + 0.1 is 1, not 0.9999999999999999, and passes for 1. */
export function roundedSum(sum: number): number {
  // Adding 0 turns -0 into 0.
  return Number(sum.toPrecision(12)) + 0
}
