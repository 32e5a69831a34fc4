import type { CallRecord, MessageNode } from '../../schema/index.ts'

/** The call of a node that is a complete reply, whether or not a client got it. */
export function replyIn({ call, discarded }: Pick<MessageNode, 'call' | 'discarded'>): CallRecord | undefined {
  if (call || discarded?.finishReason === undefined) return call
  const { why: _nobody, finishReason, ...record } = discarded
  return { ...record, finishReason }
}
