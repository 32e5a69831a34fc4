import { untoldUsage, type PartialReply } from '../../inference/index.ts'

/** Whether nothing at all came of it. */
export function isEmpty(partial: PartialReply): boolean {
  return !partial.message.tool_calls?.length && untoldUsage(partial, []).output === 0
}
