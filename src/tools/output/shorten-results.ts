import type { ToolResult } from '../_tool-turn.ts'
import type { ToolOutputs } from './tool-outputs.ts'

/** The results of a turn as the model sees them; outputs that are too long go into files. */
export async function shortenResults(results: readonly ToolResult[], outputs: ToolOutputs): Promise<ToolResult[]> {
  return await Promise.all(
    results.map(async (result) => {
      const { message, record } = result
      const content = await outputs.shorten(message.content)
      return content === message.content ? result : { message: { ...message, content }, record }
    }),
  )
}
