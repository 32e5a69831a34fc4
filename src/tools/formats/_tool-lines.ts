import type { DescribedTool } from './tool-format.ts'

/** Compact JSON, with the same keys in the same order whoever made the definition. */
function toolJson({ definition }: DescribedTool): string {
  const { name, description, parameters } = definition.function
  return JSON.stringify({ name, ...(description !== undefined && { description }), parameters })
}

/** One tool a line. */
export function toolLines(tools: readonly DescribedTool[]): string {
  return tools.map(toolJson).join('\n')
}
