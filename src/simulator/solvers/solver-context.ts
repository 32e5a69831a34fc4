import { textOf, type Message, type ToolDefinition } from '../../schema/index.ts'
import { draw } from '../_draw.ts'

/** A longer message is a document rather than a question; only its beginning and end are read. */
const longestQuestion = 16_000

export interface ToolResult {
  readonly name: string
  readonly arguments: string
  readonly text: string
}

/** A conversation as solvers see it. Nothing is computed before it is asked for. */
export class SolverContext {
  readonly messages: readonly Message[]
  readonly tools: readonly ToolDefinition[]
  readonly #skill: number
  readonly #base: number
  readonly #lastUser: number
  #question: string | undefined

  constructor(context: {
    messages: readonly Message[]
    tools: readonly ToolDefinition[]
    skill: number
    /** The number that all draws start from. */
    base: number
  }) {
    this.messages = context.messages
    this.tools = context.tools
    this.#skill = context.skill
    this.#base = context.base
    this.#lastUser = context.messages.findLastIndex((message) => message.role === 'user')
  }

  /** The last user message. */
  get question(): string {
    if (this.#question === undefined) {
      const message = this.messages[this.#lastUser]
      const text = message ? textOf(message) : ''
      const half = longestQuestion / 2
      this.#question = text.length > longestQuestion ? `${text.slice(0, half)}\n${text.slice(-half)}` : text
    }
    return this.#question
  }

  /** The system message at the start, if there is one. */
  get system(): string {
    const first = this.messages[0]
    return first && (first.role === 'system' || first.role === 'developer') ? textOf(first) : ''
  }

  /** Whether this turn's decision is right: true with the probability `skill`. */
  get isRight(): boolean {
    return this.draw('skill') < this.#skill
  }

  /** A number in [0, 1) for one purpose, always the same for the same request. */
  draw(purpose: string): number {
    return draw(this.#base, purpose)
  }

  /** One of `items`, which must not be empty. */
  pick<T>(items: readonly T[], purpose: string): T {
    return items[Math.floor(this.draw(purpose) * items.length)] as T
  }

  /** What tools answered since the last user message, or in the whole conversation. */
  results(since: 'question' | 'start' = 'question'): ToolResult[] {
    const results: ToolResult[] = []
    const calls = new Map<string, { readonly name: string; readonly arguments: string }>()
    for (let index = since === 'start' ? 0 : this.#lastUser + 1; index < this.messages.length; index += 1) {
      const message = this.messages[index]
      if (message?.role === 'assistant') {
        for (const call of message.tool_calls ?? []) calls.set(call.id, call.function)
      } else if (message?.role === 'tool') {
        const call = calls.get(message.tool_call_id)
        results.push({ name: call?.name ?? '', arguments: call?.arguments ?? '', text: textOf(message) })
      }
    }
    return results
  }
}
