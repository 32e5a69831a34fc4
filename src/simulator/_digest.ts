import { hash32 } from '../kit/index.ts'
import { TokenCounter, writePrompt } from './_token-stream.ts'
import type { SimulatorRequest } from './_simulated-api.ts'
import type { ContentPart, Message, ToolDefinition } from '../schema/index.ts'

/** The content of a request: a hash to draw from, and its length. */
export interface Digest {
  readonly hash: number
  readonly inputTokens: number
  readonly toolsText: string
}

export function digest(request: SimulatorRequest): Digest {
  const toolsText = textOfTools(request.tools)
  const { toolChoice } = request
  let hash = hash32(toolsText, typeof toolChoice === 'object' ? toolChoice.name : (toolChoice ?? 'auto'))
  for (const message of request.messages) hash = hashMessage(hash, message)
  return { hash, inputTokens: promptTokens(request), toolsText }
}

/** How many tokens the chat template makes of a request. */
export function promptTokens({ messages, tools }: Pick<SimulatorRequest, 'messages' | 'tools'>): number {
  const counter = new TokenCounter()
  writePrompt(counter, messages, textOfTools(tools))
  return counter.count
}

/** Ids of tool calls are left out: some clients make up their own, and they carry no meaning. */
function hashMessage(before: number, message: Message): number {
  if (typeof message.content === 'string' && message.role !== 'assistant') {
    return hash32(before, message.role, message.content)
  }
  let hash = hash32(before, message.role)
  if (message.role === 'assistant') {
    hash = hash32(hash, message.content ?? '', message.reasoning_content ?? '')
    for (const call of message.tool_calls ?? []) hash = hash32(hash, call.function.name, call.function.arguments)
  } else {
    for (const part of message.content) {
      if (typeof part === 'string') continue
      hash = hash32(hash, textIn(part))
    }
  }
  return hash
}

function textIn(part: ContentPart): string {
  if (part.type === 'text') return part.text
  return part.type === 'image_url' ? part.image_url.url : JSON.stringify(part.value)
}

// In process all turns of all rollouts bring the same array of tools. A weak map, as the array lives as long as its environment.
const knownTools = new WeakMap<readonly ToolDefinition[], string>()

/** Tools as the chat template writes them, without `strict`. */
export function textOfTools(tools: readonly ToolDefinition[]): string {
  if (tools.length === 0) return ''
  let text = knownTools.get(tools)
  if (text === undefined) {
    text = JSON.stringify(tools.map(withoutStrictness))
    knownTools.set(tools, text)
  }
  return text
}

function withoutStrictness(tool: ToolDefinition): ToolDefinition {
  const { strict: _left, ...rest } = tool.function
  return { ...tool, function: rest }
}
