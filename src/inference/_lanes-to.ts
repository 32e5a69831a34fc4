import { MillraceError } from '../errors/index.ts'
import type { Backend } from './backend.ts'
import { Counter } from './limits/counter.ts'
import { Lane, Lanes } from './_lanes.ts'
import type { ModelConfig } from './model-config.ts'
import type { LimitChange } from './model-contract.ts'
import type { ModelLimits } from './limits/model-limits.ts'
import { OverloadGate } from './limits/overload-gate.ts'

export interface LanesOptions {
  readonly config: ModelConfig
  readonly limits: ModelLimits
  readonly random: () => number
  readonly report: (kind: 'parked' | 'released', change: Pick<LimitChange, 'from' | 'to' | 'why'>) => void
}

/** Failures in a row that make a backend count as overloaded; fewer where fewer tries are allowed. */
const overloadThreshold = 5

/** The ways to a model's backends, each with a gate of its own. */
export function lanesTo(backends: readonly Backend[], { config, limits, random, report }: LanesOptions): Lanes {
  const { name, maxConcurrency, maxTries } = config
  const { cells, place, permits } = limits
  const laneTo = (backend: Backend, index: number): Lane => {
    const own = cells.backends[index]
    if (!own) throw new MillraceError('internal', `the shared limits of ${name} do not know ${backend.name}`)
    const gate: OverloadGate = new OverloadGate({
      threshold: maxTries === 1 ? overloadThreshold : Math.min(overloadThreshold, maxTries),
      maxConcurrency,
      random,
      shared: { cells: own, place, announce: () => limits.announce() },
      onClose: (failures) => {
        const why = `${backend.name} failed ${failures} times in a row: requests park, one at a time probes it`
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
    return new Lane(backend, gate, new Counter(own.inFlight, place))
  }
  const lanes = new Lanes(backends.map(laneTo))
  return lanes
}
