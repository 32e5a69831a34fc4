import { z } from 'zod'
import { MillraceError } from '../../errors/index.ts'
import type { Tool } from '../tool.ts'
import { noteChars, type ToolOutputs } from './tool-outputs.ts'

const parameters = z.object({
  output: z.string().describe('The name that the shortened output gave'),
  offset: z.number().int().min(0).default(0).describe('The first character to read'),
  length: z.number().int().min(1).optional().describe('How many characters; as many as may be shown if left out'),
})

export const readOutputToolName = 'read_tool_output'

/** Reads what a shortened output left out. One of an environment's tools where long outputs are kept. */
export const readOutputTool: Tool<{ readonly outputs: ToolOutputs | undefined }, typeof parameters> = {
  description: 'Reads a part of an earlier tool output that was too long to be shown whole.',
  parameters,
  resume: 'reuse',
  run: ({ output, offset, length }, { outputs }) => {
    if (!outputs) throw new MillraceError('tool_failed', 'no outputs are kept here')
    // The part that is read is itself an output, and must not be shortened again.
    const most = outputs.maxChars - noteChars
    return outputs.read(output, offset, Math.min(length ?? most, most))
  },
}
