import { Semaphore } from '../../kit/index.ts'
import type { ModelConfig } from '../model-config.ts'

/** The shape of one limit: a model with its backends, or plain permits, which have none. A plain value that can be cloned. */
export interface LimitShape {
  readonly name: string
  readonly maxConcurrency: number
  readonly adaptive: boolean
  readonly backends: number
}

/** The numbers of one backend. */
export interface BackendCells {
  /** See `GateCells`. */
  readonly gate: Int32Array
  readonly gateTimes: BigInt64Array
  /** By place: requests on their way, and requests that are parked. */
  readonly inFlight: Int32Array
  readonly parked: Int32Array
}

/** The numbers of one limit. */
export interface LimitCells {
  readonly permits: Int32Array
  /** Replies since the limit last moved, less what refusals took away. */
  readonly credit: Int32Array
  /** When the episode that a refusal began ends; further refusals until then say nothing new. */
  readonly episodeEndsAt: BigInt64Array
  /** By place, including workers that had the place before: these counts are not taken back. */
  readonly calls: Int32Array
  readonly tries: Int32Array
  /** When the bucket of requests, and that of tokens, will be full again. */
  readonly requestsFullAt: BigInt64Array
  readonly tokensFullAt: BigInt64Array
  /** By place: calls that wait for the rate limit. */
  readonly rateWaiting: Int32Array
  readonly backends: readonly BackendCells[]
}

export const gateIntegers = 3
export const gateTimes = 2

/** The numbers of all limits. */
export interface CellMap {
  /** One counter for each place; see `ThreadWaker`. */
  readonly wakeCounters: Int32Array
  /** How many parties divide each rate: every process is one, and all threads together are one. */
  readonly parties: Int32Array
  /** 1 at places that stand for a process, which may hold permits that it does not use. */
  readonly lenders: Int32Array
  readonly limits: readonly LimitCells[]
}

type Cut<Cells> = (count: number) => Cells

/** Cuts memory into cells: every thread makes the same cut for the same shapes. */
export function mapCells(shapes: readonly LimitShape[], places: number, memory: ArrayBufferLike): CellMap {
  const { longs, integers } = measure(shapes, places)
  // Numbers of 64 bits come first, because they must be aligned.
  const long = new BigInt64Array(memory, 0, longs)
  const integer = new Int32Array(memory, longs * BigInt64Array.BYTES_PER_ELEMENT, integers)
  let nextLong = 0
  let nextInteger = 0
  return cutCells(shapes, places, {
    long: (count) => long.subarray(nextLong, (nextLong += count)),
    integer: (count) => integer.subarray(nextInteger, (nextInteger += count)),
  })
}

export function bytesOfCells(shapes: readonly LimitShape[], places: number): number {
  const { longs, integers } = measure(shapes, places)
  return longs * BigInt64Array.BYTES_PER_ELEMENT + integers * Int32Array.BYTES_PER_ELEMENT
}

/** The shape of a model's limit. A simulator counts as one backend. */
export function shapeOf({ name, maxConcurrency, adaptive, simulator, backends }: ModelConfig): LimitShape {
  return { name, maxConcurrency, adaptive, backends: simulator ? 1 : backends.length }
}

function measure(shapes: readonly LimitShape[], places: number): { longs: number; integers: number } {
  const size = { longs: 0, integers: 0 }
  const none = { long: new BigInt64Array(), integer: new Int32Array() }
  cutCells(shapes, places, {
    long: (count) => ((size.longs += count), none.long),
    integer: (count) => ((size.integers += count), none.integer),
  })
  return size
}

function cutCells(
  shapes: readonly LimitShape[],
  places: number,
  { long, integer }: { long: Cut<BigInt64Array>; integer: Cut<Int32Array> },
): CellMap {
  return {
    wakeCounters: integer(places),
    parties: integer(1),
    lenders: integer(places),
    limits: shapes.map((shape) => ({
      permits: integer(Semaphore.cellsFor(places)),
      credit: integer(1),
      episodeEndsAt: long(1),
      calls: integer(places),
      tries: integer(places),
      requestsFullAt: long(1),
      tokensFullAt: long(1),
      rateWaiting: integer(places),
      backends: Array.from({ length: shape.backends }, () => ({
        gate: integer(gateIntegers),
        gateTimes: long(gateTimes),
        inFlight: integer(places),
        parked: integer(places),
      })),
    })),
  }
}
