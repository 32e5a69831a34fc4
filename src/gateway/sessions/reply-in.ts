import type { CallRecord, MessageNode } from '../../schema/index.ts'

/** How the complete reply that a node is was obtained, whether or not anybody got it. */
export function replyIn({ call, discarded }: Pick<MessageNode, 'call' | 'discarded'>): CallRecord | undefined {
  if (call || discarded?.finishReason === undefined) return call
  const { why: _nobody, finishReason, ...record } = discarded
  return { ...record, finishReason }
}
