export { runScripted, temporaryRuns } from './run-scripted.ts'
export type { ScriptedRun } from './run-scripted.ts'
export { calls, ScriptedBackend } from './scripted-backend.ts'
export type { Script, ScriptedAnswer } from './scripted-backend.ts'
