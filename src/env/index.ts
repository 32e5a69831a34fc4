export type { Agent, AgentContext, AgentTools, Turn, TurnOptions } from './agent.ts'
export type { Budget } from './budget-view.ts'
export type { ChildRequest, ChildResult } from './child.ts'
export { commandReward } from './command-reward.ts'
export type { CommandRewardOptions } from './command-reward.ts'
export type {
  JudgeRequest,
  RewardContext,
  RolloutContext,
  RolloutIdentity,
  SetupContext,
  Update,
  UpdateContext,
} from './context.ts'
export type { ContextPolicy, ContextView } from './context-policy.ts'
export { csv } from './csv.ts'
export type { CsvOptions } from './csv.ts'
export { defineEnvironment } from './define-environment.ts'
export type { Environment, EnvironmentSpec, TaskInput, ToolOutputOptions } from './define-environment.ts'
export { environmentOf } from './environment-of.ts'
export type { LoadedEnvironment, RawOptions } from './environment-of.ts'
export { exampleNames } from './example-names.ts'
export type { GroupMember, GroupPolicy } from './group.ts'
export { heavy } from './heavy.ts'
export type { HeavyRewardContext, HeavyRewardFunction, HeavyRewardOptions } from './heavy.ts'
export { jsonl } from './jsonl.ts'
export { judge } from './judge.ts'
export type { JudgeOptions, JudgeText } from './judge.ts'
export { keepToolResults } from './keep-tool-results.ts'
export type { KeepToolResultsOptions } from './keep-tool-results.ts'
export { loadEnvironment } from './load-environment.ts'
export type { GroupRewardContext, GroupRewardFunction, Reward, RewardFunction } from './reward.ts'
export { readTasks } from './read-tasks.ts'
export { registerResolver } from './register-resolver.ts'
export { groupRewardNames, hasGroupReward, scoreGroup } from './score-group.ts'
export type { GroupToScore } from './score-group.ts'
export { hasHeavyReward, scoreHeavy, scoreRollout } from './score-rollout.ts'
export type { ScoreResult, ScoringPlace } from './score-rollout.ts'
export type { TaskRow, TaskSource } from './task-source.ts'
export { thrownBy } from './thrown-by.ts'
export { TaskStream } from './task-stream.ts'
export type { InvalidTask, TaskItem, TaskStreamOptions, ValidTask } from './task-stream.ts'
export { summariseContext } from './summarise-context.ts'
export type { SummariseContextOptions } from './summarise-context.ts'
