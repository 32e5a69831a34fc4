export { nonExecuting } from './non-executing.ts'
export { plan, type PlanOptions } from './plan.ts'
export { singleTurn } from './single-turn.ts'
export { toolLoop } from './tool-loop.ts'
