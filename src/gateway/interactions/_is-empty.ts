import { untoldUsage, type PartialReply } from '../../inference/index.ts'

/** Whether a partial reply has no content at all. */
export function isEmpty(partial: PartialReply): boolean {
  return !partial.message.tool_calls?.length && untoldUsage(partial, []).output === 0
}
