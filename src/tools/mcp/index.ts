export { buildCatalogue } from './catalogue/build-catalogue.ts'
export { listTools } from './catalogue/list-tools.ts'
export { McpSession } from './session/mcp-session.ts'
export { mcpTools, refuseTaken } from './mcp-tools.ts'
export { refuseUnlisted } from './sharing/name-check.ts'
export { noServers } from './sharing/no-servers.ts'
export { enabledServers } from './config/enabled-servers.ts'
export { loadServerConfigs, readServerConfigs } from './config/read-server-configs.ts'
export type { ServerAnswer, ServerCall, ServerCallDetail } from './session/server-call.ts'
export type {
  HttpServerConfig,
  ServerConfig,
  ServerOptions,
  Sharing,
  StdioServerConfig,
} from './config/server-config.ts'
export { declaredServers, serverConfigsOf } from './config/server-configs-of.ts'
export { toolServerEvents } from './session/server-events.ts'
export type { ServerEvent } from './session/server-events.ts'
export { Redaction } from './config/redaction.ts'
export { ServerProcess } from './process/server-process.ts'
export { sharingOf } from './config/sharing-of.ts'
export type { ServerTool, ToolCatalogue } from './catalogue/tool-catalogue.ts'
export { ToolServers } from './sharing/tool-servers.ts'
export type { ServerCalls, ServerLease } from './sharing/tool-servers-contract.ts'
