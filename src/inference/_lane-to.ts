import type { Backend } from './backend.ts'
import { Lane, type Lanes } from './_lanes.ts'
import type { ModelConfig } from './model-config.ts'
import type { LimitChange } from './model-contract.ts'
import type { ModelLimits } from './limits/model-limits.ts'
import { OverloadGate } from './limits/overload-gate.ts'
import type { BackendCells } from './limits/shared-limits-cells.ts'

export interface LaneOptions {
  readonly config: ModelConfig
  readonly limits: ModelLimits
  readonly random: () => number
  readonly report: (kind: 'parked' | 'released', change: Pick<LimitChange, 'from' | 'to' | 'why'>) => void
}

/** Failures in a row that make a backend count as overloaded; fewer where fewer tries are allowed. */
const overloadThreshold = 5

/** Makes the lane to one backend of a model, with a gate of its own. `lanes` is the live list of the model's lanes. */
export function laneTo(backend: Backend, cells: BackendCells, lanes: Lanes, options: LaneOptions): Lane {
  const { config, limits, random, report } = options
  const { maxConcurrency, maxTries } = config
  const { place, permits } = limits
  const gate: OverloadGate = new OverloadGate({
    threshold: maxTries === 1 ? overloadThreshold : Math.min(overloadThreshold, maxTries),
    maxConcurrency,
    random,
    shared: { cells, place, announce: () => limits.announce() },
    onClose: (failures) => {
      const found = `${backend.name} failed ${failures} times in a row: requests park, one at a time probes it`
      const why = lane.lastFailure ? `${found}. The last time: ${lane.lastFailure.rawMessage}` : found
      report('parked', { from: permits.limit, to: 1, why })
    },
    onReopen: (closedMs, parked) => {
      const why = `${backend.name} answers again after ${(closedMs / 1000).toFixed(1)} s: ${parked} parked requests go on`
      report('released', { from: 1, to: permits.limit, why })
    },
    onRecovering: () => {
      for (const lane of lanes.all) if (lane.gate !== gate) lane.gate.dismiss()
    },
  })
  const lane: Lane = new Lane({ backend, gate, cells, place })
  return lane
}
