import { MillraceError } from '../errors/index.ts'
import type { JsonObject } from '../schema/index.ts'
import type { SimulatorStats } from './simulator-stats.ts'
import type { Simulator } from './simulator.ts'

/** A request to an endpoint beside the model's own. */
export interface ControlCall {
  readonly simulator: Simulator
  readonly stats: SimulatorStats
  /** The models served, as they are listed. */
  readonly models: readonly string[]
  readonly query: URLSearchParams
  /** Empty for a GET. */
  readonly body: JsonObject
}

/** Answers one endpoint with a JSON document; throws a coded error. */
export type Control = (call: ControlCall) => object | Promise<object>

/** By method and path: `POST /pause`. */
export type Controls = Readonly<Record<string, Control>>

/** Sets the version of the weights: both engines take the same body. */
export function changeVersion({ simulator, body }: ControlCall): string {
  const { new_version: version } = body
  if (typeof version !== 'string') throw invalid('new_version is a text: the version of the new weights')
  simulator.change({ weightVersion: version })
  return version
}

export function invalid(message: string): MillraceError {
  return new MillraceError('config_invalid', message, { data: { status: 400 } })
}
