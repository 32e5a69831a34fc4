export { strayErrors } from './stray-errors.ts'
export type { StrayError } from './stray-errors.ts'
export { ThreadExecutor } from './thread-executor.ts'
export type { ThreadStart } from './thread-messages.ts'
