export type {
  Agent,
  AgentContext,
  AgentTools,
  Budget,
  ChildRequest,
  ChildResult,
  ContextPolicy,
  ContextView,
  FeedbackContext,
  JudgeRequest,
  RewardContext,
  RolloutContext,
  RolloutIdentity,
  SetupContext,
  Turn,
  TurnOptions,
  Update,
  UpdateContext,
  Verification,
} from './define/context.ts'
export { checkOptions, isFunction, mustBe, wholeNumber } from './define/check-options.ts'
export { commandReward, type CommandRewardOptions } from './rewards/command-reward.ts'
export { csv, type CsvOptions } from './tasks/csv.ts'
export {
  defineEnvironment,
  type Environment,
  type EnvironmentSpec,
  type TaskInput,
  type TaskParts,
  type TaskRow,
  type TaskSource,
  type ToolOutputOptions,
} from './define/define-environment.ts'
export { environmentOf, type LoadedEnvironment, type RawOptions } from './load/environment-of.ts'
export { exampleNames } from './load/locate-environment.ts'
export {
  type GroupMember,
  type GroupPolicy,
  type GroupRewardContext,
  type GroupRewardFunction,
  offload,
  type OffloadedRewardContext,
  type OffloadedRewardFunction,
  type OffloadedRewardOptions,
  type Reward,
  rewardClock,
  type RewardFunction,
  type TimedContext,
} from './rewards/reward.ts'
export { jsonl, jsonlAsWritten } from './tasks/jsonl.ts'
export { judge, type JudgeOptions, type JudgeText } from './rewards/judge.ts'
export { keepToolResults, type KeepToolResultsOptions } from './context/keep-tool-results.ts'
export { loadEnvironment } from './load/load-environment.ts'
export { readTasks } from './tasks/read-tasks.ts'
export { environmentCode, type EnvironmentCode, registerResolver } from './load/module-hooks.ts'
export { groupRewardNames, hasGroupReward, ownRewardNames, scoreGroup } from './rewards/score-group.ts'
export {
  hasOffloadedReward,
  scoreOffloaded,
  type ScoreResult,
  scoreRollout,
  type ScoringHooks,
} from './rewards/score-rollout.ts'
export { type InvalidTask, type TaskItem, taskName, TaskStream, type ValidTask } from './tasks/task-stream.ts'
export { summariseContext, type SummariseContextOptions } from './context/summarise-context.ts'
