import { isJsonObject, type Json, type Message, textOf } from '../../../src/schema/index.ts'

/** One step of an episode, the same for a message of a record and for items of Responses. */
export type Step = Readonly<Record<string, Json>>

export function stepsOfMessage(message: Message): Step[] {
  if (message.role === 'tool') return [{ result: textOf(message), of: message.tool_call_id }]
  if (message.role !== 'assistant') return [{ said: textOf(message), by: message.role }]
  const { reasoning_content: reasoning, content, tool_calls: called = [] } = message
  return [
    ...(reasoning ? [{ thought: reasoning }] : []),
    ...(content ? [{ said: content, by: 'assistant' }] : []),
    ...called.map(({ id, function: { name, arguments: args } }) => ({ called: name, with: args, id })),
  ]
}

/** The same of `output` of a response. Throws at an item that an episode does not have. */
export function stepsOfItems(output: readonly Json[]): Step[] {
  return output.map((item) => {
    if (!isJsonObject(item)) throw unknown(item)
    const { type, role = null, content = null, name = null, arguments: args = null, call_id: id = null } = item
    if (type === 'reasoning') return { thought: textIn(item['summary'] ?? null) }
    if (type === 'message') return { said: textIn(content), by: role }
    if (type === 'function_call') return { called: name, with: args, id }
    if (type === 'function_call_output') return { result: item['output'] ?? null, of: id }
    throw unknown(item)
  })
}

function textIn(content: Json): string {
  if (typeof content === 'string') return content
  if (!Array.isArray(content)) throw unknown(content)
  return content.map((part) => (isJsonObject(part) && typeof part['text'] === 'string' ? part['text'] : '')).join('')
}

function unknown(value: Json): Error {
  return new Error(`not part of an episode: ${JSON.stringify(value)}`)
}
