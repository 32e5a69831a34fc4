import type { AssistantMessage, ToolCall } from '../../../src/schema/index.ts'

type Random = () => number

/** A message with any mix of text, reasoning, refusal and calls, none of them empty. */
export function randomMessage(random: Random): AssistantMessage {
  const text = (): string =>
    Array.from(
      { length: 1 + Math.floor(random() * 30) },
      () => 'ab é漢🙂{}"\\\n'.at(Math.floor(random() * 11)) ?? '',
    ).join('')
  const calls = Array.from({ length: Math.floor(random() * 3) }, (_, index): ToolCall => ({
    id: `id-${index}`,
    type: 'function',
    function: { name: `tool${index}`, arguments: text() },
  }))
  return {
    role: 'assistant',
    content: calls.length === 0 || random() < 0.3 ? text() : null,
    ...(random() < 0.5 && { reasoning_content: text() }),
    ...(random() < 0.2 && { refusal: text() }),
    ...(calls.length > 0 && { tool_calls: calls }),
  }
}

/** A Chat Completions stream of it, in pieces of one to three characters. */
export function chatEvents(message: AssistantMessage): string[] {
  const deltas: object[] = [{ role: 'assistant', content: '' }]
  for (const piece of pieces(message.reasoning_content)) deltas.push({ reasoning_content: piece })
  for (const piece of pieces(message.content ?? '')) deltas.push({ content: piece })
  for (const piece of pieces(message.refusal)) deltas.push({ refusal: piece })
  for (const [index, { id, function: called }] of (message.tool_calls ?? []).entries()) {
    deltas.push({ tool_calls: [{ index, id, type: 'function', function: { name: called.name, arguments: '' } }] })
    for (const piece of pieces(called.arguments)) {
      deltas.push({ tool_calls: [{ index, function: { arguments: piece } }] })
    }
  }
  const chunk = (delta: object, finish: string | null): string =>
    JSON.stringify({ choices: [{ index: 0, delta, finish_reason: finish }] })
  const usage = JSON.stringify({ choices: [], usage: { prompt_tokens: 3, completion_tokens: 4 } })
  return [
    ...deltas.map((delta) => chunk(delta, null)),
    chunk({}, message.tool_calls ? 'tool_calls' : 'stop'),
    usage,
    '[DONE]',
  ]
}

/** A Responses stream of it. */
export function responsesEvents(message: AssistantMessage): string[] {
  const events: object[] = [{ type: 'response.created', response: { status: 'in_progress' } }]
  const output = outputOf(message)
  for (const [output_index, item] of output.entries()) {
    const place = { output_index, item_id: item['id'] }
    events.push({ type: 'response.output_item.added', output_index, item: { ...item, content: [], arguments: '' } })
    if (item['type'] === 'function_call') {
      for (const delta of pieces(String(item['arguments']))) {
        events.push({ type: 'response.function_call_arguments.delta', ...place, delta })
      }
    }
    for (const [content_index, part] of (item['content'] as readonly PartWire[] | undefined)?.entries() ?? []) {
      const kind = part.type === 'output_text' ? 'output_text' : part.type
      for (const delta of pieces(part.text ?? part.refusal)) {
        events.push({ type: `response.${kind}.delta`, ...place, content_index, delta })
      }
    }
    events.push({ type: 'response.output_item.done', output_index, item })
  }
  events.push({ type: 'response.completed', response: { status: 'completed', output, usage: null } })
  return events.map((event) => JSON.stringify(event))
}

interface PartWire {
  readonly type: string
  readonly text?: string
  readonly refusal?: string
}

function outputOf(message: AssistantMessage): Record<string, unknown>[] {
  const output: Record<string, unknown>[] = []
  if (message.reasoning_content !== undefined) {
    output.push({ id: 'rs', type: 'reasoning', content: [{ type: 'reasoning_text', text: message.reasoning_content }] })
  }
  const content: PartWire[] = []
  if (typeof message.content === 'string') content.push({ type: 'output_text', text: message.content })
  if (message.refusal !== undefined) content.push({ type: 'refusal', refusal: message.refusal })
  if (content.length > 0) output.push({ id: 'msg', type: 'message', content })
  for (const { id, function: called } of message.tool_calls ?? []) {
    output.push({ id: `fc_${id}`, type: 'function_call', call_id: id, name: called.name, arguments: called.arguments })
  }
  return output
}

function pieces(whole = ''): string[] {
  return whole.match(/.{1,3}/gsu) ?? []
}

export function eventStream(events: readonly string[]): Buffer {
  return Buffer.from(events.map((data) => `data: ${data}\n\n`).join(''))
}
