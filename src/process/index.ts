export { ProcessGuard } from './process-guard.ts'
export { groupMemoryBytes, signal } from './process-tree.ts'
export { ServerProcess } from './server-process.ts'
export { resumeSpawned, spawnSuspended, startRefusal } from './suspended-spawn.ts'
