import { inspect } from 'node:util'
import { MillraceError } from '../errors/index.ts'
import { thrownBy } from '../kit/index.ts'
import type { Backend, BackendReply, BackendRequest } from '../apis/index.ts'
import { type AssistantMessage, type Message, textOf } from '../schema/index.ts'

/** What a script answers: text, a message, or a reply, whose finish reason and usage follow from its message if not given. */
export type ScriptedAnswer = string | AssistantMessage | (Pick<BackendReply, 'message'> & Partial<BackendReply>)

export type Script = (request: BackendRequest) => ScriptedAnswer | Promise<ScriptedAnswer>

/**
 * A backend whose answers a test writes down, as a function of what is asked and never of the order in which it is asked:
 * rollouts run at once. A script that throws fails the try, as a real backend would.
 */
export class ScriptedBackend implements Backend {
  readonly name = 'scripted'
  /** Every request so far, for assertions. Bounded: the newest `maxRequests` are kept. */
  readonly requests: BackendRequest[] = []
  readonly #script: Script

  constructor(script: Script) {
    this.#script = script
  }

  async send(request: BackendRequest): Promise<BackendReply> {
    // The session's list grows as the conversation goes on; what was asked here must not.
    this.requests.push({ ...request, messages: [...request.messages] })
    if (this.requests.length > maxRequests) this.requests.shift()
    request.signal.throwIfAborted()
    let answer: ScriptedAnswer
    try {
      answer = await this.#script(request)
    } catch (error) {
      request.signal.throwIfAborted()
      throw error instanceof MillraceError ? error : thrownBy('the script', error, 'model_server_error')
    }
    request.signal.throwIfAborted()
    return replyOf(answer, request.messages)
  }

  async [Symbol.asyncDispose](): Promise<void> {}
}

const maxRequests = 10_000

/**
 * An assistant message that calls tools: `calls({ add: { a: 1, b: 2 } })`. One tool twice:
 * `calls({ add: first }, { add: second })`. A text is sent as it is, as by a model that does not write JSON.
 */
export function calls(...tools: Readonly<Record<string, unknown>>[]): AssistantMessage {
  return {
    role: 'assistant',
    content: null,
    tool_calls: tools.flatMap(Object.entries<unknown>).map(([name, args], index) => ({
      id: `call_${index}`,
      type: 'function' as const,
      function: { name, arguments: typeof args === 'string' ? args : JSON.stringify(args ?? {}) },
    })),
  }
}

function replyOf(answer: ScriptedAnswer | null | undefined, messages: readonly Message[]): BackendReply {
  const given = partsOf(answer)
  if (!given) throw noAnswer(answer, messages)
  const { message } = given
  const input = messages.reduce((words, each) => words + wordCount(textOf(each)), 0)
  return {
    finishReason: message.tool_calls?.length ? 'tool_calls' : 'stop',
    usage: { calls: 1, input, cachedInput: 0, output: wordCount(JSON.stringify(message)), reasoning: 0 },
    ...given,
  }
}

/** Undefined if it is no answer: JavaScript has no types, and a path of a script without `return` is soon written. */
function partsOf(answer: ScriptedAnswer | null | undefined): Exclude<ScriptedAnswer, string | Message> | undefined {
  if (typeof answer === 'string') return { message: { role: 'assistant', content: answer } }
  if (typeof answer !== 'object' || answer === null) return undefined
  const parts = 'message' in answer ? answer : { message: answer }
  return parts.message?.role === 'assistant' ? parts : undefined
}

function noAnswer(answer: unknown, messages: readonly Message[]): MillraceError {
  const last = messages.at(-1)
  const asked = last ? `${last.role}: ${textOf(last).slice(0, maxQuotedChars)}` : 'an empty conversation'
  const problem = `the script has no answer to "${asked}"`
  const returned =
    answer === undefined || answer === null
      ? ''
      : `; it returned ${inspect(answer, { depth: 1 }).slice(0, maxQuotedChars)}`
  return new MillraceError(
    'model_malformed',
    `${problem}${returned}: return a text, calls(), a message with the role "assistant", or a reply with such a \`message\``,
  )
}

const maxQuotedChars = 100

const wordCount = (text: string): number => text.split(/\s+/).length
