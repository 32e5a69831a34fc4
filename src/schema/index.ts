export type { ApiName, ClientApi } from './api-name.ts'
export { apiPaths, countPaths } from './api-paths.ts'
export { closedObject } from './closed-object.ts'
export type { FinishReason } from './finish-reason.ts'
export { jsonObjectSchema, jsonSchema } from './any-json.ts'
export { isJsonList, isJsonObject } from './json.ts'
export type { Json, JsonObject } from './json.ts'
export { defaultLimits, limitsSchema } from './limits.ts'
export type { Limits } from './limits.ts'
export { messageSchema, partsText, textOf } from './message.ts'
export type {
  AssistantMessage,
  ContentPart,
  Message,
  OtherPart,
  SystemMessage,
  ToolCall,
  ToolDefinition,
  ToolMessage,
  UserMessage,
} from './message.ts'
export type {
  CallRecord,
  DiscardReason,
  DiscardRecord,
  ItemIds,
  ItemKind,
  LogprobsKind,
  MessageNode,
  OriginalReply,
  RoutedExperts,
  SamplingRecord,
  TokenRecord,
  ToolRecord,
  ToolReports,
  ToolStatus,
  ToolThrow,
  VersionSpan,
  TextToolRecord,
} from './node.ts'
export { maxOriginalDepth } from './node.ts'
export { outcomeNames, outcomes } from './outcome.ts'
export type { Outcome } from './outcome.ts'
export { rolloutId } from './rollout-id.ts'
export type { MissingServer, RewardComponent, RolloutRecord, RolloutTiming, ToolFault } from './rollout-record.ts'
export { samplingSchema } from './sampling.ts'
export type { Sampling } from './sampling.ts'
export { describeIssue, describeIssues } from './describe-issues.ts'
export type { OutputOf, StandardSchema, ValidationIssue, ValidationResult } from './standard-schema.ts'
export type { RepairRule, ToolRepair } from './tool-repair.ts'
export { addUsage, emptyUsage, usageSchema } from './usage.ts'
export type { Usage } from './usage.ts'
