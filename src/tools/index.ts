export { endsAttempt, type ResumeRule, type Tool, ToolAnswer, type ToolOutput, type ToolResult } from './tool.ts'
export { describeParameters, type JsonSchema, jsonSchemaOf } from './json-schema.ts'
export { jsonSchemaParameters } from './json-schema-parameters.ts'
export { maxKeptChars, readOutputTool, readOutputToolName, shortenResults, ToolOutputs } from './tool-output.ts'
export { ToolBox, type ToolBoxOptions } from './tool-box.ts'
export { type CallingToolCall, type ToolCallEvent, type ToolCallOptions, toolCalls } from './tool-turn.ts'
export { createRepairer } from './repair/repairer.ts'
export { miroThinkerRepairs, type RepairRules, repairRulesSchema, standardRepairs } from './repair/repair-rules.ts'
export { McpSession } from './mcp/session/mcp-session.ts'
export { mcpTools, refuseTaken } from './mcp/catalogue/mcp-tools.ts'
export { refuseUnlisted, type ServerTool, type ToolCatalogue } from './mcp/catalogue/tool-catalogue.ts'
export { noServers, rolloutsWaiting, type ServerCalls, type ToolServerStatus } from './mcp/sharing/rollout-lease.ts'
export {
  enabledServers,
  type HttpServerConfig,
  redactionOf,
  type ServerConfig,
  type ServerOptions,
  sharingOf,
  type StdioServerConfig,
} from './mcp/config/server-config.ts'
export {
  declaredServers,
  loadServerConfigs,
  readServerConfigs,
  serverConfigsOf,
} from './mcp/config/read-server-configs.ts'
export type { ServerAnswer, ServerCall, ServerCallDetail } from './mcp/transports/pending-calls.ts'
export { type ServerEvent, toolServerEvents } from './mcp/session/server-events.ts'
export { ToolServers } from './mcp/sharing/tool-servers.ts'
