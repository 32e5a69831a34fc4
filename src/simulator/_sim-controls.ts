import type { ControlCall, Controls } from './_control.ts'
import type { SimulatorOptions } from './simulator-options.ts'

/** The simulator's own endpoints, whichever backend it imitates. */
export const simControls: Controls = {
  'GET /health': () => ({ status: 'ok' }),
  'GET /sim/stats': ({ stats }) => stats,
  'GET /sim/settings': ({ simulator }) => simulator.settings,
  'POST /sim/settings': changeSettings,
  'GET /sim/emitted': ({ simulator, query }) => simulator.emitted(query.get('session') ?? undefined),
}

/** Takes any of the simulator's options, and `overload: true` or `false` until further notice. */
function changeSettings({ simulator, body }: ControlCall): object {
  const { overload, ...rest } = body
  const options: SimulatorOptions = typeof overload === 'boolean' ? rest : body
  simulator.change(options)
  if (typeof overload === 'boolean') simulator.setOverload(overload)
  return simulator.settings
}
