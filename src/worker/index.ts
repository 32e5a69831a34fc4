export { type UnhandledError, unhandledErrors, type WorkerHeap } from './channel/channel.ts'
export { maxWorkers, type WorkerPoolOptions } from './supervisor.ts'
export { resolveSupervision, type Supervision } from './supervision.ts'
export { WorkerPool } from './pool.ts'
