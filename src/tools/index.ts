export { endsAttempt } from './ends-attempt.ts'
export { jsonSchemaOf } from './json-schema.ts'
export { jsonSchemaParameters } from './json-schema-parameters.ts'
export type { JsonSchema } from './json-schema.ts'
export { readOutputTool, readOutputToolName } from './output/read-output-tool.ts'
export { shortenResults } from './output/shorten-results.ts'
export { maxKeptChars, ToolOutputs } from './output/tool-outputs.ts'
export type { ResumeRule, Tool, ToolOutput } from './tool.ts'
export { ToolAnswer } from './tool-answer.ts'
export { ToolBox } from './tool-box.ts'
export type { ToolBoxOptions } from './tool-box.ts'
export { toolCalls } from './tool-calls.ts'
export type { ToolCallEvent } from './tool-calls.ts'
export type { ToolCallOptions, ToolResult } from './_tool-turn.ts'
export { validate } from './validate.ts'
export type { Validated } from './validate.ts'
export type { AskingCall } from './asking-call.ts'
export type { WrittenCall } from './written-call.ts'
export { toolFormatNames } from './formats/tool-format.ts'
export type { ToolFormat, ToolFormatName } from './formats/tool-format.ts'
export { toolFormatOf } from './formats/tool-formats.ts'
export {
  buildCatalogue,
  declaredServers,
  enabledServers,
  letThrough,
  listTools,
  loadServerConfigs,
  McpSession,
  mcpTools,
  noServers,
  ProcessGuard,
  readServerConfigs,
  redactionOf,
  refusedAtGate,
  refuseTaken,
  refuseUnlisted,
  rolloutsWaiting,
  serverConfigsOf,
  serverFetch,
  ServerProcess,
  sharingOf,
  spawnGated,
  ToolServers,
  toolServerEvents,
} from './mcp/index.ts'
export type {
  HttpServerConfig,
  ServerAnswer,
  ServerCall,
  ServerCallDetail,
  ServerCalls,
  ServerConfig,
  ServerEvent,
  ServerExit,
  ServerLease,
  ServerOptions,
  ServerTool,
  StdioServerConfig,
  ToolCatalogue,
  ToolServerStatus,
} from './mcp/index.ts'
export { createRepairer } from './repair/create-repairer.ts'
export { miroThinkerRepairs, standardRepairs } from './repair/presets.ts'
export { repairRulesSchema } from './repair/repair-rules.ts'
export type { RepairRules } from './repair/repair-rules.ts'
export { describeParameters } from './_describe-parameters.ts'
