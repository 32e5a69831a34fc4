export { ThreadExecutor } from './thread-executor.ts'
export type { ThreadStart } from './thread-messages.ts'
