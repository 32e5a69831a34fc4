export type { Agent, AgentContext, AgentTools, Turn, TurnOptions } from './agent.ts'
export type { Budget } from './budget-view.ts'
export type { ChildRequest, ChildResult } from './child.ts'
export type {
  JudgeRequest,
  RewardContext,
  RolloutContext,
  RolloutIdentity,
  SetupContext,
  Update,
  UpdateContext,
} from './context.ts'
export { defineEnvironment } from './define-environment.ts'
export type { Environment, EnvironmentSpec, TaskInput } from './define-environment.ts'
export type { GroupMember, GroupPolicy } from './group.ts'
export type { GroupRewardContext, GroupRewardFunction, Reward, RewardFunction } from './reward.ts'
export type { TaskRow, TaskSource } from './task-source.ts'
