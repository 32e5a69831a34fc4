export { agentOutcomeOf, failedReward } from './result/outcome.ts'
export { attemptAbandoned, type HeldRollout, openingEvent, recordLimitChange } from './schedule/journal-entries.ts'
export type {
  AttemptResult,
  Executor,
  GroupJob,
  GroupScores,
  OffloadStatus,
  PromptOverride,
  RolloutTerms,
  RolloutJob,
  RunSettings,
  WorkerStatus,
} from './schedule/executor.ts'
export { applyGroupScores, type GroupRules, waitsForGroups, totalReward, voidGroup } from './schedule/groups.ts'
export { InlineExecutor, type InlineExecutorOptions, judgePermits } from './schedule/inline-executor.ts'
export { askJudge, questionDigest } from './agent/judge.ts'
export {
  isReply,
  RecordedServers,
  type RecordedAnswer,
  type RecordedVerdict,
  type Recording,
  VerdictReader,
} from './recording/recording.ts'
export { BlockedRewards, type BlockedLoop, loopBlockedEvent, loopLag, recordBlocked } from './reward/blocked-loops.ts'
export { callsIn, callStyleOf, recalledChildEvent, unresumableCall } from './agent/agent-calls.ts'
export { contextEvent } from './agent/context-copy.ts'
export {
  readJudgeCalls,
  readServerAnswers,
  readSessions,
  readVerdicts,
  recordingToFork,
  recordingToReplay,
  recordingToResume,
  type StoredSession,
  wholeNodes,
} from './recording/read-recording.ts'
export {
  type Conversation,
  EnvironmentSession,
  type SessionHost,
  type SessionScore,
  type SessionScoring,
} from './environment/environment-session.ts'
export { outputsOf } from './environment/run-rollout.ts'
export { ModelSet } from './environment/model-set.ts'
export { recordWithoutRun } from './result/record.ts'
export { offloadedRewardModule, RewardPool } from './reward/reward-pool.ts'
export { scoreGroupInTime } from './reward/score.ts'
export { StoredScorer } from './reward/stored-scorer.ts'
export { addUsage, Tally, ToolFaults } from './agent/budget.ts'
export { type RolloutTools, Toolkit, toolsWithoutServers } from './environment/toolkit.ts'
export { type RolloutEndEvent, rolloutEvents, type RolloutStartEvent } from './result/rollout-events.ts'
export type { PlannedAttempt, UsedRetries } from './schedule/attempts.ts'
export { type PlannedRollout, Scheduler, type SchedulerOptions } from './schedule/scheduler.ts'
