export { recordCodeChanges, recordedCodeChanges, mixedCodeNotice } from './resume/code-change.ts'
export type { Fork, ForkOrigin } from './replay/fork.ts'
export { type ForkOptions, forkRollout } from './replay/fork-rollout.ts'
export { abortRun, type OpenedRun, openRun } from './resume/open-run.ts'
export { earlierLaunch, type EarlierLaunch } from './resume/unfinished-work.ts'
export { evaluate } from './evaluate.ts'
export {
  type EvaluateOptions,
  evaluateOptionFields,
  type Evaluation,
  requireOptions,
  type RunInfo,
  type RunOptions,
} from './options.ts'
export { openExecutor } from './launch.ts'
export { planOne } from './resume/plan-rollouts.ts'
export { UnreadableRollouts, ActiveTime } from './stats/run-sums.ts'
export type { Progress } from './progress.ts'
export type { ScoreEstimate } from './stats/clustered-mean.ts'
export { type ReplayOptions, replayRollout, replayRun } from './replay/replay.ts'
export type { Difference, MessageDifference, ReplayReport } from './replay/report.ts'
export { readStoredConfig } from './replay/stored-config.ts'
export { type RescoredRollout, type RescoreOptions, rescoreRun, type Rescoring } from './replay/rescore.ts'
export type { RescoredSide, RescoreSummary } from './replay/rescore-summary.ts'
export { type ResolvedRun, resolveRun } from './resolve-run.ts'
export type { RunConfig } from './run-config.ts'
export type { RolloutSummary, Spending, Summary } from './summary.ts'
export { resumeRun } from './resume/resume-run.ts'
export { triesOfRun, unacceptedSpending } from './stats/spending.ts'
export { type EndedRollout, SummaryAccumulator } from './stats/summary-accumulator.ts'
