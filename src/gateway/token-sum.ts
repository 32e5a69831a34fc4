import { crc32 } from 'node:zlib'
import { bytesOf } from '../kit/index.ts'
import type { CompleteTokens } from './captured-tokens.ts'

/**
 * A checksum of a prompt and its reply. It tells whether a later prompt begins with both, without keeping their tokens: one pass
 * over the later prompt, some 10 µs for 10,000 tokens. A change of one token is always noticed, any other with 1 - 2^-32.
 */
export interface TokenSum {
  /** The number of tokens. */
  readonly count: number
  /** Signed, because V8 then keeps it in the object itself. */
  readonly crc: number
}

/**
 * How the prompt of a later turn begins. `exact`: with the tokens of the prompt and the reply before it. `drifted`: with others,
 * because the client or the chat template wrote the history anew.
 */
export type TurnTokens = 'exact' | 'drifted'

/** A turn's own sum, and how it follows the earlier turn, if there is one. */
export interface SummedTurn {
  readonly sum: TokenSum
  readonly turn: TurnTokens | undefined
}

/** Sums a turn up. `earlier`: the sum of the nearest reply before it that has tokens. */
export function summedTurn(
  { promptIds, ids }: Pick<CompleteTokens, 'promptIds' | 'ids'>,
  earlier: TokenSum | undefined,
): SummedTurn {
  // A prompt that is shorter than the earlier turn has another count, whatever its checksum.
  const begun = sumOf(promptIds.subarray(0, earlier?.count ?? 0), nothing)
  const isExact = begun.count === earlier?.count && begun.crc === earlier.crc
  const sum = sumOf(ids, sumOf(promptIds.subarray(begun.count), begun))
  return { sum, turn: earlier && (isExact ? 'exact' : 'drifted') }
}

const nothing: TokenSum = { count: 0, crc: 0 }

/** The sum of these tokens after those of another sum. */
function sumOf(tokens: Int32Array, { count, crc }: TokenSum): TokenSum {
  return { count: count + tokens.length, crc: crc32(bytesOf(tokens), crc >>> 0) | 0 }
}
