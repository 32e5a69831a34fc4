export type { EmittedReply } from './engine/emitted-log.ts'
export { SimulatorServer, type SimulatorServerOptions } from './server/server.ts'
export type { SimulatorStats } from './server/imitations.ts'
export { Simulator } from './engine/simulator.ts'
export {
  type ImitationName,
  parseSimulatorOptions,
  type SimulatorOptions,
  type SimulatorSettings,
} from './engine/options.ts'
