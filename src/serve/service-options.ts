import { evaluateOptionNames, type EvaluateOptions } from '../eval/index.ts'
import type { RolloutRecord } from '../schema/index.ts'
import { defaultBounds, type ServeBounds } from './serve-bounds.ts'

type NotServed = 'limit' | 'maxCostUsd' | 'passThreshold'

const notServed: Readonly<Record<NotServed, true>> = { limit: true, maxCostUsd: true, passThreshold: true }

/**
 * As for `evaluate`, with the same meaning, except that tasks come with the requests. `attempts` is what a request gets that
 * does not say how many, and the size of groups where the environment settles groups together.
 */
export interface ServiceOptions extends Omit<EvaluateOptions, NotServed> {
  readonly bounds?: Partial<ServeBounds>
  /** Hears of every result once it is durable. */
  readonly onSettled?: (record: RolloutRecord) => void
}

/** What `requireKnownOptions` is to know. */
export const serviceOptions = {
  of: 'RolloutService.open()',
  names: [...evaluateOptionNames.filter((name) => !(name in notServed)), 'bounds', 'onSettled'],
  inner: { bounds: Object.keys(defaultBounds) },
}
