import type { Backend } from './backend.ts'
import { BackendRoute, type BackendRoutes } from './_backend-routes.ts'
import type { ModelConfig } from './model-config.ts'
import type { LimitChange } from './model-contract.ts'
import type { ModelLimits } from './limits/model-limits.ts'
import { OverloadGate } from './limits/overload-gate.ts'
import type { BackendCells } from './limits/shared-limits-cells.ts'

export interface BackendRouteOptions {
  readonly config: ModelConfig
  readonly limits: ModelLimits
  readonly random: () => number
  readonly report: (kind: 'parked' | 'released', change: Pick<LimitChange, 'from' | 'to' | 'why'>) => void
}

/** Failures in a row that make a backend count as overloaded; fewer where fewer tries are allowed. */
const overloadThreshold = 5

/** Makes the route to one backend of a model, with a gate of its own. `routes` is the live list of the model's routes. */
export function routeTo(
  backend: Backend,
  cells: BackendCells,
  routes: BackendRoutes,
  options: BackendRouteOptions,
): BackendRoute {
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
      const why = route.lastFailure ? `${found}. The last time: ${route.lastFailure.rawMessage}` : found
      report('parked', { from: permits.limit, to: 1, why })
    },
    onReopen: (closedMs, parked) => {
      const why = `${backend.name} answers again after ${(closedMs / 1000).toFixed(1)} s: ${parked} parked requests go on`
      report('released', { from: 1, to: permits.limit, why })
    },
    onRecovering: () => {
      for (const route of routes.all) if (route.gate !== gate) route.gate.dismiss()
    },
  })
  const route: BackendRoute = new BackendRoute({ backend, gate, cells, place })
  return route
}
