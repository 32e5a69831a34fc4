import { textOf, type ContentPart, type Message, type TextToolRecord, type ToolMessage } from '../schema/index.ts'
import type { ToolFormat, ToolResult, WrittenCall } from '../tools/index.ts'
import type { CallStyle } from './call-style.ts'

/**
 * The recorded parts of results that an earlier sitting put into words: they are used as they are. All rollouts share this map:
 * its entries live no longer than their turn.
 */
const worded = new WeakMap<ToolMessage, readonly ContentPart[]>()

/**
 * Calls as a model writes them into its text. The reply is recorded as it was sampled; all results of a turn go back as one user
 * message, since most chat templates do not allow two in a row.
 */
export function textCalls(format: ToolFormat): CallStyle {
  return {
    opening: (prompt, tools) => {
      const described = tools.described()
      return described.length === 0 ? prompt : withSystemText(prompt, format.describe(described))
    },
    declared: () => [],
    callsIn: ({ content }, turn) => (content === null ? [] : format.parse(content, `call_${turn}`)),
    answer: (calls, results) => {
      const parts = results.map((result, index) => partsOf(format, calls[index], result))
      const tools = results.map(({ record }, index): TextToolRecord => ({
        ...record,
        parts: parts[index]?.length ?? 0,
      }))
      const all = parts.flat()
      const [only] = all
      const content = all.length === 1 && only?.type === 'text' ? only.text : all
      return [{ message: { role: 'user', content }, answers: { tools } }]
    },
    recall: (recorded, index) => {
      const node = recorded(0)
      const record = node?.tools?.[index]
      if (!node?.tools || !record) return undefined
      const { content } = node.message
      const all: readonly ContentPart[] =
        typeof content === 'string' ? [{ type: 'text', text: content }] : (content ?? [])
      const from = node.tools.slice(0, index).reduce((sum, { parts }) => sum + parts, 0)
      const message: ToolMessage = { role: 'tool', tool_call_id: '', content: '' }
      worded.set(message, all.slice(from, from + record.parts))
      const { parts: _parts, ...bare } = record
      return { message, record: bare }
    },
  }
}

function partsOf(
  format: ToolFormat,
  call: WrittenCall | undefined,
  { message, record }: ToolResult,
): readonly ContentPart[] {
  const recorded = worded.get(message)
  if (recorded || !call) return recorded ?? []
  const { content } = message
  const text = textOf(message)
  const images = typeof content === 'string' ? [] : content.filter((part) => part.type !== 'text')
  return [{ type: 'text', text: format.result(call, text, record.status !== 'ok') }, ...images]
}

/** Adds text to the end of the system message, or as a system message of its own where there is none. */
function withSystemText(prompt: readonly Message[], text: string): readonly Message[] {
  const [first, ...rest] = prompt
  if (first?.role !== 'system') return [{ role: 'system', content: text }, ...prompt]
  const content =
    typeof first.content === 'string'
      ? `${first.content}\n\n${text}`
      : [...first.content, { type: 'text' as const, text: `\n\n${text}` }]
  return [{ ...first, content }, ...rest]
}
