import type { ApiName, Json, JsonObject } from '../../src/schema/index.ts'
import type { StreamEvent } from './_stream-events.ts'

/** How a client of one API writes its conversation and reads replies: what its SDK would do. */
export interface Voice {
  readonly api: ApiName
  readonly path: string
  user(text: string, image?: string): readonly Json[]
  results(results: readonly ToolResult[]): readonly Json[]
  body(conversation: readonly Json[], options: AskOptions): JsonObject
  heard(reply: JsonObject): Heard
  /** What a stream that is complete comes to. */
  heardStream(events: readonly StreamEvent[]): Heard
}

export interface AskOptions {
  readonly stream: boolean
  readonly model?: string
  readonly system?: string
  readonly tools?: boolean
  /** Two of the APIs have no word for it; it goes to the backend all the same. */
  readonly seed?: number
}

export interface ToolResult {
  readonly id: string
  readonly text: string
}

/** A reply as a client has it. */
export interface Heard {
  readonly id: string
  readonly text: string
  readonly reasoning: string
  readonly calls: readonly HeardCall[]
  /** What of the reply goes back into the conversation. */
  readonly items: readonly Json[]
}

export interface HeardCall {
  readonly id: string
  readonly name: string
  readonly arguments: string
}

/** A picture of one pixel, as base64. */
export const pixel = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='

/** A tool that every model can call. */
export const lookUp = {
  name: 'look_up',
  description: 'Looks a word up.',
  parameters: {
    type: 'object',
    properties: { word: { type: 'string' }, language: { type: 'string', enum: ['en', 'de', '日本語'] } },
    required: ['word', 'language'],
    additionalProperties: false,
  },
} as const
