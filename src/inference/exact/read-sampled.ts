import { SyntheticIds } from '../../apis/index.ts'
import type { AssistantMessage, FinishReason, Message, ToolCall } from '../../schema/index.ts'
import type { ReasoningMarkers } from '../../tokenizer/index.ts'
import type { FoundCall, ToolFormat } from '../../tool-formats/index.ts'

export interface SampledText {
  /** The text of the sampled tokens, without the token that ends the reply. */
  readonly text: string
  /** Whether the prompt ended inside of reasoning: the reply then begins with it. */
  readonly startsInReasoning: boolean
}

interface ReadingOptions {
  readonly markers: ReasoningMarkers | undefined
  /** How calls are written; undefined if the reply may call no tools. */
  readonly toolFormat: ToolFormat | undefined
  /** The conversation, in which the ids of calls must be new. */
  readonly messages: readonly Message[]
  /** Whether a limit cut the reply off. */
  readonly isCut?: boolean
  readonly maxCalls?: number
}

/** Reads a sampled reply as a message. The message is a view of it: what is recorded and sent again are its tokens. */
export function readSampled(sampled: SampledText, options: ReadingOptions): AssistantMessage {
  const { markers, toolFormat, messages, isCut = false, maxCalls = Infinity } = options
  const { reasoning, rest } = withoutReasoning(sampled, markers)
  const { calls, start } = toolFormat?.find(rest) ?? { calls: [], start: rest.length }
  // As in vLLM, a reply with a call that cannot be read is text: clients could not answer a call without a name.
  const isReadable = calls.length > 0 && calls.every(({ name }) => name !== '') && !(isCut && endsInCall(calls))
  const content = isReadable ? rest.slice(0, start).trimEnd() : rest
  const ids = new SyntheticIds(messages)
  const toolCalls = calls.slice(0, maxCalls).map(({ name, arguments: written }, index): ToolCall => ({
    id: ids.at(index),
    type: 'function',
    function: { name, arguments: written === '' ? '{}' : written },
  }))
  return {
    role: 'assistant',
    content: isReadable && content === '' ? null : content,
    ...(reasoning !== '' && { reasoning_content: reasoning }),
    ...(isReadable && { tool_calls: toolCalls }),
  }
}

function endsInCall(calls: readonly FoundCall[]): boolean {
  try {
    JSON.parse(calls.at(-1)?.arguments ?? '')
    return false
  } catch {
    return true
  }
}

/** The backend says only that the model stopped, or was cut off. */
export function finishReasonFor(reason: FinishReason, { tool_calls: calls }: AssistantMessage): FinishReason {
  return reason === 'stop' && calls ? 'tool_calls' : reason
}

function withoutReasoning(
  { text, startsInReasoning }: SampledText,
  markers: ReasoningMarkers | undefined,
): { readonly reasoning: string; readonly rest: string } {
  if (!markers) return { reasoning: '', rest: text }
  const { open, close } = markers
  const opened = text.trimStart()
  if (!startsInReasoning && !opened.startsWith(open)) return { reasoning: '', rest: text }
  const body = startsInReasoning ? text : opened.slice(open.length)
  const end = body.indexOf(close)
  // A reply that was cut off while it reasoned has said nothing yet.
  if (end === -1) return { reasoning: withoutLineEnds(body), rest: '' }
  return { reasoning: withoutLineEnds(body.slice(0, end)), rest: body.slice(end + close.length).replace(/^\n+/, '') }
}

function withoutLineEnds(text: string): string {
  return text.replaceAll(/^\n+|\n+$/g, '')
}
