export { AttemptRecorder } from './attempt-recorder.ts'
export { exportRollouts, familyPieces } from './export-rollouts.ts'
export type { ExportOptions } from './export-rollouts.ts'
export { damagedRollout } from './damaged-rollout.ts'
export type { DamagedRollout } from './damaged-rollout.ts'
export { findRuns, latestUnfinished } from './find-runs.ts'
export type { BrokenRun, FoundRun, FoundRuns } from './find-runs.ts'
export { JournalClient } from './journal-client.ts'
export type { JournalPort } from './journal-client.ts'
export type { Journal } from './journal.ts'
export type { AttemptEnd, AttemptStart, EventEntry, JournalEntry, NodeEntry, RolloutEnd } from './journal-entry.ts'
export { provenance } from './provenance.ts'
export type { Provenance } from './provenance.ts'
export { pruneRuns } from './prune-runs.ts'
export type { PrunedRun, PruneOptions } from './prune-runs.ts'
export { isRedacted, redact } from './redact.ts'
export type { Redacted } from './redact.ts'
export { readRunFile } from './run-file.ts'
export type { NewRun, RunFile, RunState } from './run-file.ts'
export { defaultRunsRoot, reserveRunName, runFiles, runFolder } from './run-folder.ts'
export { RunReader } from './run-reader.ts'
export type { SessionEndReason, SessionStart } from './session-entry.ts'
export { sessionAttempt } from './session-attempt.ts'
export { damagedSession, isDamage, missingMessage, unlessDamaged } from './damage.ts'
export { SessionReader } from './session-reader.ts'
export type { SessionCounts, SessionQuery, StoredReward, StoredSession } from './session-reader.ts'
export { RunStore, type OpenRunOptions } from './run-store.ts'
export { spoolDamages } from './spool-damage.ts'
export type { StoreStatus } from './store-status.ts'
export type {
  BareRecord,
  RolloutFacts,
  RunCounts,
  StoredAttempt,
  StoredEvent,
  StoredRollout,
  StoredTask,
  UnfinishedRollout,
} from './stored-run.ts'
