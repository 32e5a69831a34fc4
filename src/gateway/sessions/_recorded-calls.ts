import { changedInput, changesOf, sameArguments } from '../../dialects/index.ts'
import type { AssistantMessage, JsonObject, Message, ToolCall } from '../../schema/index.ts'
import type { TextAllowance } from './_text-allowance.ts'

/**
 * The tool calls of a session's replies as they were sampled, by the numbers of their nodes. They are kept for replies that no
 * client has sent back yet, and for those that a client sends back in another spelling. Calls that are not kept, because the
 * allowance has no room for them, are read from the store.
 */
export class RecordedCalls {
  readonly #allowance: TextAllowance
  #calls: Map<number, readonly ToolCall[]> | undefined
  #chars = 0

  constructor(allowance: TextAllowance) {
    this.#allowance = allowance
  }

  /** The characters taken from the allowance. */
  get chars(): number {
    return this.#chars
  }

  keep(seq: number, calls: readonly ToolCall[]): void {
    const chars = charsOf(calls)
    if (chars === 0 || this.#calls?.has(seq) || !this.#allowance.take(chars)) return
    this.#chars += chars
    this.#calls ??= new Map()
    this.#calls.set(seq, calls)
  }

  of(seq: number): readonly ToolCall[] | undefined {
    return this.#calls?.get(seq)
  }

  drop(seq: number): void {
    const calls = this.#calls?.get(seq)
    if (!calls) return
    this.#calls?.delete(seq)
    const chars = charsOf(calls)
    this.#chars -= chars
    this.#allowance.giveBack(chars)
  }

  clear(): void {
    this.#allowance.giveBack(this.#chars)
    this.#chars = 0
    this.#calls = undefined
  }
}

/** The message with the arguments as they were sampled, wherever the client's are the same but for the spelling. */
export function withRecordedArguments(message: AssistantMessage, recorded: readonly ToolCall[]): AssistantMessage {
  // A client may send calls in another order. Calls with one id are told apart by their order.
  const left = [...recorded]
  const calls = callsIn(message).map((sent) => {
    const index = left.findIndex(({ id }) => id === sent.id)
    const [found] = index === -1 ? [] : left.splice(index, 1)
    return found ? inSpellingOf(found, sent) : sent
  })
  return { ...message, tool_calls: calls }
}

function inSpellingOf({ function: recorded }: ToolCall, sent: ToolCall): ToolCall {
  const { name } = recorded
  const changes = changesOf([recorded]).map((change) => (input: JsonObject) => changedInput(name, input, change))
  if (!sameArguments(recorded.arguments, sent.function.arguments, changes)) return sent
  return { ...sent, function: { ...sent.function, arguments: recorded.arguments } }
}

/** The calls of a message. */
export function callsIn(message: Message | undefined): readonly ToolCall[] {
  return message?.role === 'assistant' ? (message.tool_calls ?? []) : []
}

function charsOf(calls: readonly ToolCall[]): number {
  let chars = 0
  for (const { id, function: called } of calls) chars += id.length + called.name.length + called.arguments.length
  return chars
}
