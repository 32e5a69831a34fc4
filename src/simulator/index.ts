export { SimulatorServer } from './simulator-server.ts'
export type { SimulatorServerOptions, SimulatorStats } from './simulator-server.ts'
export { Simulator } from './simulator.ts'
export type { SimulatorOptions, SimulatorSettings } from './simulator-options.ts'
