import { MillraceError } from '../errors/index.ts'
import { hermes } from './hermes.ts'
import { llama } from './llama.ts'
import { mcpXml } from './mcp-xml.ts'
import { pythonic } from './pythonic.ts'
import { toolFormatNames, type ToolFormat, type ToolFormatName } from './tool-format.ts'

export const toolFormats: Readonly<Record<ToolFormatName, ToolFormat>> = {
  'mcp-xml': mcpXml,
  hermes,
  llama,
  pythonic,
}

export function toolFormatOf(name: string): ToolFormat {
  const known = toolFormatNames.find((one) => one === name)
  if (known) return toolFormats[known]
  throw new MillraceError(
    'config_invalid',
    `there is no tool format "${name}": choose one of ${toolFormatNames.join(', ')}, or none for native calls`,
  )
}
