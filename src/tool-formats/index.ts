export {
  type FoundCall,
  type ParsedToolCall,
  type ToolFormat,
  type ToolFormatName,
  toolFormatNames,
  type DescribedTool,
} from './tool-format.ts'
export { toolFormatOf } from './tool-formats.ts'
