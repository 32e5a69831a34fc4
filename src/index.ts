export { z } from 'zod'
export { toolLoop } from './agents/index.ts'
export { commandReward, csv, defineEnvironment, judge, jsonl } from './env/index.ts'
export type {
  Agent,
  AgentContext,
  AgentTools,
  Budget,
  ChildRequest,
  ChildResult,
  Environment,
  EnvironmentSpec,
  GroupMember,
  GroupPolicy,
  GroupRewardContext,
  GroupRewardFunction,
  JudgeRequest,
  Reward,
  RewardContext,
  RewardFunction,
  RolloutContext,
  SetupContext,
  TaskInput,
  TaskSource,
  Turn,
  TurnOptions,
  Update,
  UpdateContext,
} from './env/index.ts'
export { MillraceError } from './errors/index.ts'
export type { ErrorCode, WireError } from './errors/index.ts'
export { evaluate } from './eval/index.ts'
export type {
  EvaluateOptions,
  Evaluation,
  Progress,
  RunInfo,
  RunOptions,
  ScoreEstimate,
  Summary,
} from './eval/index.ts'
export type { Backend, BackendReply, BackendRequest, ModelConfigInput } from './inference/index.ts'
export { outcomes } from './schema/index.ts'
export type {
  AssistantMessage,
  ContentPart,
  Limits,
  Message,
  MessageNode,
  Outcome,
  RewardComponent,
  RolloutRecord,
  Sampling,
  ToolCall,
  ToolDefinition,
  ToolMessage,
  Usage,
} from './schema/index.ts'
export { Simulator, SimulatorServer } from './simulator/index.ts'
export { exportRollouts, findRuns, RunReader } from './store/index.ts'
export type { ResumeRule, Tool, ToolOutput } from './tools/index.ts'
