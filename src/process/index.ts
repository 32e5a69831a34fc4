export { ProcessGuard } from './process-guard.ts'
export { groupMemoryBytes, signal } from './process-tree.ts'
export { Program } from './program.ts'
export { resumeSpawned, spawnSuspended, startRefusal } from './suspended-spawn.ts'
