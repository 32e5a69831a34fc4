export {
  agentNamed,
  type AgentName,
  agentNames,
  type NamedAgent,
  namedAgentOf,
  namedAgentSchema,
} from './named-agents.ts'
export { external, type ExternalOptions } from './external.ts'
export { nonExecuting } from './non-executing.ts'
export { orchestrate, type OrchestrateOptions, type SubAgent } from './orchestrate.ts'
export { parallel, type ParallelOptions } from './parallel.ts'
export { plan, type PlanOptions } from './plan.ts'
export { reflect, type ReflectOptions } from './reflect.ts'
export { refine, type RefineOptions } from './refine.ts'
export { singleTurn } from './single-turn.ts'
export { toolLoop } from './tool-loop.ts'
export { userSimulator, type UserSimulatorOptions } from './user-simulator.ts'
