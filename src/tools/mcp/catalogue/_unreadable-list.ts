import { SdkError, SdkErrorCode } from '@modelcontextprotocol/client'
import { z } from 'zod'
import { MillraceError } from '../../../errors/index.ts'
import { plainIssue } from '../../../schema/index.ts'

/** More say nothing new: mostly it is the same of every tool. */
const maxShown = 3

const issuesSchema = z.array(z.object({ path: z.array(z.union([z.string(), z.number()])), message: z.string() }))

/** What is wrong with a list that the SDK could not read, which has it as JSON over many lines; any other error as it is. */
export function unreadableList(error: unknown): unknown {
  if (!(error instanceof SdkError) || error.code !== SdkErrorCode.InvalidResult) return error
  const [, json = ''] = /^Invalid result for tools\/list: (\[[^]*\])$/.exec(error.message) ?? []
  const issues = issuesOf(json)
  if (!issues) return error
  const told = issues.slice(0, maxShown).map(({ path, message }) => `${placeOf(path)}: ${plainIssue(message)}`)
  const more = issues.length > maxShown ? `; and ${issues.length - maxShown} more` : ''
  return new MillraceError(
    'tool_infra',
    `its tool list is not as MCP has it: ${told.join('; ')}${more}. That is for the server to correct`,
  )
}

function issuesOf(json: string): z.infer<typeof issuesSchema> | undefined {
  try {
    return issuesSchema.parse(JSON.parse(json))
  } catch {
    return undefined
  }
}

function placeOf(path: readonly (string | number)[]): string {
  return path.map((step, index) => (typeof step === 'number' ? `[${step}]` : `${index > 0 ? '.' : ''}${step}`)).join('')
}
