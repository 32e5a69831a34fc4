import { Semaphore, SemaphoreLedger } from '../../kit/index.ts'
import { sumOf } from './counter.ts'
import { GateCells } from './_gate-cells.ts'
import type { ModelStatus } from '../model-contract.ts'
import {
  bytesOfCells,
  mapCells,
  type BackendCells,
  type CellMap,
  type LimitCells,
  type LimitShape,
} from './shared-limits-cells.ts'

/** Takes what replies teach about the limit, if the limit that learns from them is in another process. */
export interface LimitLessons {
  onSuccess(): void
  onRateLimited(retryAfterMs: number): void
}

/** The limits of a model in one worker: cells that may be shared with other workers, and this worker's place in them. */
export interface ModelLimits {
  readonly cells: LimitCells
  readonly parties: Int32Array
  readonly place: number
  readonly permits: Semaphore
  readonly lessons?: LimitLessons
  /** Tells the other workers that a gate has moved. */
  announce(): void
  /** Calls the listener when another worker may have moved a gate, until the returned function is called. */
  onAnnounced(listener: () => void): () => void
}

/** Limits that are shared with no other worker. */
export function ownLimits(shape: LimitShape): ModelLimits {
  const map = mapCells([shape], 1, new ArrayBuffer(bytesOfCells([shape], 1)))
  fillCells(map, [shape])
  const cells = map.limits[0] as LimitCells
  return {
    cells,
    parties: map.parties,
    place: 0,
    permits: new Semaphore({ cells: cells.permits, place: 0, wake: () => undefined }),
    announce: () => undefined,
    onAnnounced: () => () => undefined,
  }
}

/** Cells for `count` backends that are added later, to a model that shares its limits with nobody. */
export function ownBackendCells(count: number): readonly BackendCells[] {
  const shape = { name: 'later', maxConcurrency: 1, adaptive: false, backends: count }
  return mapCells([shape], 1, new ArrayBuffer(bytesOfCells([shape], 1))).limits[0]?.backends ?? []
}

/** Sets the start values of new cells. */
export function fillCells(map: CellMap, shapes: readonly LimitShape[]): void {
  map.parties[0] = 1
  for (const [index, { maxConcurrency }] of shapes.entries()) {
    const { permits } = map.limits[index] as LimitCells
    new SemaphoreLedger(permits, 0).setLimit(maxConcurrency)
  }
}

/** The status of a model, all workers together. */
export function statusOf(name: string, cells: LimitCells, backends = cells.backends): ModelStatus {
  const { limit, held, waiting } = new SemaphoreLedger(cells.permits, 0)
  const gates = backends.map((backend) => new GateCells(backend))
  const probing = gates.filter((gate) => gate.isProbing).length
  return {
    name,
    limit,
    inFlight: held,
    waiting: waiting + sumOf(cells.rateWaiting),
    parked: backends.reduce((parked, backend) => parked + sumOf(backend.parked), 0),
    ...(probing > 0 && { probing }),
    ...(gates.every((gate) => gate.isShut) && { isShut: true }),
    calls: sumOf(cells.calls),
    tries: sumOf(cells.tries),
  }
}
