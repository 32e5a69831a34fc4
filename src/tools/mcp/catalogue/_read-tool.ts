import { specTypeSchemas } from '@modelcontextprotocol/client'
import { describeIssues, isJsonObject } from '../../../schema/index.ts'
import type { ServerTool } from './tool-catalogue.ts'

/** A listed tool that does not follow MCP. */
export interface UnfitTool {
  /** Left out if the tool has no name. */
  readonly name?: string
  readonly problem: string
}

/** One entry of a server's list. */
export function readTool(server: string, listed: unknown): ServerTool | UnfitTool {
  const checked = specTypeSchemas.Tool['~standard'].validate(listed)
  if (checked.issues) {
    const name = isJsonObject(listed) ? listed['name'] : undefined
    return { ...(typeof name === 'string' && { name }), problem: describeIssues(checked.issues) }
  }
  const { name, description, inputSchema, outputSchema, annotations } = checked.value
  const isReadOnly = annotations?.readOnlyHint === true
  return {
    server,
    name,
    ...(description !== undefined && { description }),
    inputSchema,
    ...(outputSchema !== undefined && { outputSchema }),
    isReadOnly,
    // A read-only tool can be repeated, whether or not it says so.
    isIdempotent: isReadOnly || annotations?.idempotentHint === true,
  }
}
