import { knownEvaluateOptions, type EvaluateOptions, type KnownOptions } from '../eval/index.ts'
import type { RolloutRecord } from '../schema/index.ts'
import type { ServeBounds } from './serve-bounds.ts'

/**
 * As for `evaluate`, with the same meaning, except that tasks come with the requests. `attempts` is what a request gets that
 * does not say how many, and the size of groups where the environment settles groups together.
 */
export interface ServiceOptions extends Omit<EvaluateOptions, 'limit' | 'maxCostUsd' | 'passThreshold'> {
  readonly bounds?: Partial<ServeBounds>
  /** Hears of every result once it is durable. */
  readonly onSettled?: (record: RolloutRecord) => void
}

const { limit: _limit, maxCostUsd: _maxCostUsd, passThreshold: _passThreshold, ...served } = knownEvaluateOptions

const bounds = {
  maxQueuedRollouts: 'amount',
  maxQueuedBytes: 'amount',
  maxTasksPerRequest: 'amount',
  maxTaskBytes: 'amount',
  maxBodyBytes: 'amount',
  maxBodiesBytes: 'amount',
  maxRememberedRequests: 'amount',
  abandonGraceMs: 'amount',
} as const satisfies KnownOptions & Record<keyof ServeBounds, unknown>

export const serviceOptions = {
  ...served,
  bounds,
  onSettled: 'function',
} as const satisfies KnownOptions & Record<keyof ServiceOptions, unknown>
