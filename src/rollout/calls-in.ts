import type { MessageNode } from '../schema/index.ts'
import type { WrittenCall } from '../tools/index.ts'
import type { CallStyle } from './call-style.ts'

/** All calls that a conversation holds, as they were written. */
export function* callsIn(nodes: readonly MessageNode[], style: CallStyle): Generator<WrittenCall, void, void> {
  let turn = 0
  for (const { message } of nodes) {
    if (message.role !== 'assistant') continue
    yield* style.callsIn(message, turn)
    turn += 1
  }
}
