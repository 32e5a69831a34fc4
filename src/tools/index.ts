export type { ResumeRule, Tool, ToolOutput } from './tool.ts'
