import type { ModelRequest } from '../../apis/index.ts'
import { hash32 } from '../../kit/index.ts'
import type { AssistantMessage, ContentPart, Message, RoutedExperts, ToolDefinition } from '../../schema/index.ts'

/** The part of a reply that a token belongs to; a `marker` is written by the chat template alone. */
export type TokenPart = 'marker' | 'reasoning' | 'content' | 'name' | 'arguments'

export interface Token {
  readonly id: number
  readonly piece: string
  readonly part: TokenPart
  /** The index of the tool call that the token belongs to, -1 for none. */
  readonly call: number
}

/** Takes a conversation piece by piece: a counter or a list. The same walk feeds both, so they agree. */
interface TokenSink {
  marker(name: string, call?: number): void
  text(text: string, part: TokenPart, call?: number): void
}

export class TokenCounter implements TokenSink {
  count = 0

  marker(): void {
    this.count += 1
  }

  text(text: string): void {
    this.count += countPieces(text)
  }
}

export class TokenList implements TokenSink {
  readonly tokens: Token[] = []

  marker(name: string, call = -1): void {
    this.tokens.push({ id: markerId(name), piece: name, part: 'marker', call })
  }

  text(text: string, part: TokenPart, call = -1): void {
    eachPiece(text, (piece) => this.tokens.push({ id: pieceId(piece), piece, part, call }))
  }
}

/**
 * The chat template, up to where the reply begins. An assistant's earlier reply is written exactly as it was sampled, so the next
 * prompt starts with this prompt followed by its reply: trainers rely on that.
 */
export function writePrompt(sink: TokenSink, messages: readonly Message[], toolsText: string): void {
  if (toolsText !== '') {
    sink.marker('<|tools|>')
    sink.text(toolsText, 'content')
    sink.marker('<|end|>')
  }
  for (const message of messages) {
    sink.marker(`<|${message.role}|>`)
    if (message.role === 'assistant') {
      writeReply(sink, message)
    } else if (typeof message.content === 'string') {
      sink.text(message.content, 'content')
    } else {
      for (const part of message.content) {
        if (part.type === 'text') sink.text(part.text, 'content')
        else sink.marker('<|image|>')
      }
    }
    sink.marker('<|end|>')
  }
  sink.marker('<|assistant|>')
}

export function writeReply(sink: TokenSink, message: AssistantMessage): void {
  if (message.reasoning_content !== undefined) {
    sink.marker('<think>')
    sink.text(message.reasoning_content, 'reasoning')
    sink.marker('</think>')
  }
  if (message.content !== null) sink.text(message.content, 'content')
  const calls = message.tool_calls ?? []
  for (const [index, call] of calls.entries()) {
    sink.marker('<tool_call>', index)
    sink.text(call.function.name, 'name', index)
    sink.marker('<arguments>', index)
    sink.text(call.function.arguments, 'arguments', index)
  }
}

function textIds(text: string): Int32Array {
  const list = new TokenList()
  list.text(text, 'content')
  return Int32Array.from(list.tokens, (token) => token.id)
}

/** Ordinary pieces of text have ids below this number, markers above. */
const vocabularySize = 128_000
const markerIds = 1024

const longestWord = 8
const longestNumber = 3

/** Where a piece ends: up to eight letters or three digits with a space before them, white space, or one character. */
function pieceEnd(text: string, start: number): number {
  const { length } = text
  let index = start
  let kind = kindAt(text, index)
  if (text.charCodeAt(index) === 0x20 && index + 1 < length) {
    const next = kindAt(text, index + 1)
    if (next === 'letter' || next === 'digit') {
      kind = next
      index += 1
    }
  }
  if (kind === 'other') {
    const code = text.charCodeAt(index)
    // Both halves of a surrogate pair belong to one piece.
    return index + (code >= 0xd800 && code < 0xdc00 && index + 1 < length ? 2 : 1)
  }
  const limit = kind === 'letter' ? index + longestWord : kind === 'digit' ? index + longestNumber : length
  do index += 1
  while (index < length && index < limit && kindAt(text, index) === kind)
  return index
}

function kindAt(text: string, index: number): 'letter' | 'digit' | 'space' | 'other' {
  const code = text.charCodeAt(index)
  const lower = code | 0x20
  if (lower >= 0x61 && lower <= 0x7a) return 'letter'
  if (code >= 0x30 && code <= 0x39) return 'digit'
  return code === 0x20 || (code >= 0x09 && code <= 0x0d) ? 'space' : 'other'
}

export function countPieces(text: string): number {
  let count = 0
  for (let index = 0; index < text.length; index = pieceEnd(text, index)) count += 1
  return count
}

export function eachPiece(text: string, visit: (piece: string) => void): void {
  let index = 0
  while (index < text.length) {
    const end = pieceEnd(text, index)
    visit(text.slice(index, end))
    index = end
  }
}

export function pieceId(piece: string): number {
  return hash32(piece) % vocabularySize
}

function markerId(marker: string): number {
  return vocabularySize + (hash32(marker) % markerIds)
}

function promptIds(messages: readonly Message[], toolsText: string): Int32Array {
  const list = new TokenList()
  writePrompt(list, messages, toolsText)
  return Int32Array.from(list.tokens, (token) => token.id)
}

/** Log-probabilities, mostly close to 0. Multiples of 1/256 are exact as 32-bit floats and short as JSON. */
export function logprobsOf(count: number, base: number): Float32Array {
  const logprobs = new Float32Array(count)
  for (let index = 0; index < count; index += 1) {
    const luck = hash32(base, index) / 0x1_0000_0000
    // Never -0: it would come back from JSON as 0.
    const steps = Math.floor(luck ** 4 * 4 * 256)
    logprobs[index] = steps === 0 ? 0 : -steps / 256
  }
  return logprobs
}

const expertCount = 128

/** The experts of each sampled token in each layer: neighbours out of 128. `mixture` is `<layers>x<experts per token>`. */
export function expertsOf(mixture: string, tokens: number, base: number): RoutedExperts {
  const [layers = 0, perToken = 0] = mixture.split('x').map(Number)
  const experts = new Uint8Array(tokens * layers * perToken)
  for (let row = 0; row < tokens * layers; row += 1) {
    const first = hash32(base, 'expert', row)
    for (let rank = 0; rank < perToken; rank += 1) experts[row * perToken + rank] = (first + rank) % expertCount
  }
  return { shape: [tokens, layers, perToken], experts }
}

export interface SimulatorRequest extends Omit<ModelRequest, 'sessionId'> {
  /** The prompt in place of the messages, where an API takes tokens, or a text without a chat template. */
  readonly promptIds?: Int32Array
  readonly promptText?: string
  /** How many tokens of the reply the prompt ends with. */
  readonly begun?: number
}

export type Conversation = Pick<SimulatorRequest, 'messages' | 'tools'>

/** How the simulated model sees text. */
export interface Vocabulary {
  /** The folder with its tokenizer and chat template, if it has any. */
  readonly folder?: string
  encode(text: string): Int32Array
  prompt(conversation: Conversation): Int32Array
  promptTokens(conversation: Conversation): number
  /** The tokens of a reply, end marker included. `base` decides what the message leaves open. */
  sample(message: AssistantMessage, base: number): Token[]
  /** The conversation that a prompt of ids means. If missing, such prompts are told apart, but not understood. */
  read?(promptIds: Int32Array): Conversation & Pick<SimulatorRequest, 'begun'>
}

/** Tokens made up from words: each text has one form as tokens, and each token one text. */
export const words: Vocabulary = {
  encode: textIds,
  prompt: ({ messages, tools }) => promptIds(messages, textOfTools(tools)),
  promptTokens({ messages, tools }) {
    const counter = new TokenCounter()
    writePrompt(counter, messages, textOfTools(tools))
    return counter.count
  },
  sample(message) {
    const list = new TokenList()
    writeReply(list, message)
    list.marker('<|end|>')
    return list.tokens
  },
}

export function requestHash({ messages, tools, toolChoice }: SimulatorRequest): number {
  const choice = typeof toolChoice === 'object' ? toolChoice.name : (toolChoice ?? 'auto')
  let hash = hash32(textOfTools(tools), choice)
  for (const message of messages) hash = hashMessage(hash, message)
  return hash
}

export function toolsHash(tools: readonly ToolDefinition[]): number {
  return hash32(textOfTools(tools))
}

/** Ids of tool calls are left out: some clients make up their own, and they carry no meaning. */
export function hashMessage(before: number, message: Message): number {
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
function textOfTools(tools: readonly ToolDefinition[]): string {
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
