export { z } from 'zod'
export { toolLoop } from './agents/index.ts'
export { commandReward, csv, defineEnvironment, heavy, judge, jsonl } from './env/index.ts'
export type {
  Agent,
  AgentContext,
  AgentTools,
  Budget,
  ChildRequest,
  ChildResult,
  CommandRewardOptions,
  CsvOptions,
  Environment,
  EnvironmentSpec,
  GroupMember,
  GroupPolicy,
  GroupRewardContext,
  GroupRewardFunction,
  HeavyRewardContext,
  HeavyRewardFunction,
  HeavyRewardOptions,
  JudgeOptions,
  JudgeRequest,
  JudgeText,
  Reward,
  RewardContext,
  RewardFunction,
  RolloutContext,
  RolloutIdentity,
  SetupContext,
  TaskInput,
  TaskRow,
  TaskSource,
  Turn,
  TurnOptions,
  Update,
  UpdateContext,
} from './env/index.ts'
export { MillraceError } from './errors/index.ts'
export type { ErrorCode, WireError } from './errors/index.ts'
export { evaluate, SummaryAccumulator } from './eval/index.ts'
export type {
  EndedRollout,
  EvaluateOptions,
  Evaluation,
  Progress,
  RolloutSummary,
  RunInfo,
  RunOptions,
  ScoreEstimate,
  Summary,
} from './eval/index.ts'
export type {
  Backend,
  BackendReply,
  BackendRequest,
  ModelConfigInput,
  ModelRequest,
  ModelStatus,
  Price,
  ToolChoice,
} from './inference/index.ts'
export { outcomes, textOf } from './schema/index.ts'
export type {
  AssistantMessage,
  CallRecord,
  ContentPart,
  FinishReason,
  Json,
  Limits,
  Message,
  MessageNode,
  Outcome,
  RewardComponent,
  RolloutRecord,
  RolloutTiming,
  Sampling,
  StandardSchema,
  SystemMessage,
  TokenRecord,
  ToolCall,
  ToolDefinition,
  ToolMessage,
  ToolRecord,
  ToolStatus,
  Usage,
  UserMessage,
} from './schema/index.ts'
export { exportSessions } from './gateway/index.ts'
export type { ExportSessionsOptions, Gateway, ModelFacts } from './gateway/index.ts'
export { findModels, GatewayServer, HttpDoor, RolloutService } from './serve/index.ts'
export type {
  Finding,
  FindModelsOptions,
  FoundModels,
  GatewayBounds,
  GatewayConfigInput,
  GatewayServerOptions,
  HttpDoorOptions,
  KnownRequest,
  ListedRollout,
  ListFilter,
  Readiness,
  ResultReader,
  RolloutPage,
  RolloutRequest,
  RolloutState,
  ServeBounds,
  ServiceOptions,
  ServiceStatus,
  SettledRollout,
  Submission,
  TenantKey,
} from './serve/index.ts'
export { Simulator, SimulatorServer } from './simulator/index.ts'
export type { SimulatorOptions, SimulatorServerOptions, SimulatorSettings, SimulatorStats } from './simulator/index.ts'
export { exportRollouts, findRuns, pruneRuns, RunReader } from './store/index.ts'
export type {
  BareRecord,
  BrokenRun,
  ExportOptions,
  FoundRun,
  FoundRuns,
  PrunedRun,
  PruneOptions,
  RunCounts,
  RunFile,
  RunState,
  SessionQuery,
  SessionReader,
  StoredAttempt,
  StoredEvent,
  StoredReward,
  StoredRollout,
  StoredSession,
  StoredTask,
  UnfinishedRollout,
} from './store/index.ts'
export type { WorkerStatus } from './rollout/index.ts'
export type { Supervision, WorkerHeap } from './worker/index.ts'
export type { ResumeRule, Tool, ToolOutput } from './tools/index.ts'
