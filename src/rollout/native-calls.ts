import type { CallStyle } from './call-style.ts'

/** Calls as the APIs have them: declared in the request, answered with a tool message each. */
export const nativeCalls: CallStyle = {
  opening: (prompt) => prompt,
  declared: (definitions) => definitions,
  callsIn: ({ tool_calls: calls }) => calls ?? [],
  answer: (_calls, results) => results.map(({ message, record }) => ({ message, answers: { tool: record } })),
  recall: (recorded, index) => {
    const node = recorded(index)
    if (node?.message.role !== 'tool' || !node.tool) return undefined
    return { message: node.message, record: node.tool }
  },
}
