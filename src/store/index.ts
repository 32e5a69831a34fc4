export { type ExportOptions, exportRollouts, nodeAndChildPieces } from './read/export-rollouts.ts'
export { damagedRollout, type DamagedRollout } from './read/rollout-line.ts'
export { type BrokenRun, findRuns, type FoundRun, type FoundRuns, latestUnfinished } from './run/find-runs.ts'
export { AttemptRecorder, JournalClient, type JournalPort } from './write/journal-client.ts'
export {
  type AttemptEnd,
  type AttemptStart,
  type EventEntry,
  type Journal,
  type JournalEntry,
  type NodeEntry,
  type RolloutEnd,
  sessionAttempt,
  type SessionEndReason,
  type SessionStart,
} from './write/journal.ts'
export { provenance } from './run/provenance.ts'
export type { NodeWithoutTokens } from './read/stored-nodes.ts'
export { type PrunedRun, type PruneOptions, pruneRuns } from './run/prune-runs.ts'
export { isRedacted, redact, type Redacted } from './run/redact.ts'
export { type NewRun, readRunFile, type RunFile, type RunState } from './run/run-file.ts'
export { defaultRunsRoot, reserveRunName, runFiles, runFolder } from './run/run-folder.ts'
export { RunReader } from './read/run-reader.ts'
export { damagedSession, isDamage, missingMessage, unlessDamaged } from './read/damage.ts'
export {
  type SessionCounts,
  type SessionQuery,
  SessionReader,
  type StoredReward,
  type StoredSession,
} from './read/session-reader.ts'
export { RunStore } from './run-store.ts'
export type { StoreStatus } from './write/writer-figures.ts'
export type {
  AttemptSpending,
  BareRecord,
  EndedAttempt,
  RolloutFacts,
  RunCounts,
  StoredAttempt,
  StoredEvent,
  StoredRollout,
  StoredTask,
  UnfinishedRollout,
} from './read/stored-run.ts'
