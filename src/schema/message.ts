import { z } from 'zod'
import type { Json } from '../kit/index.ts'
import { jsonSchema } from './validation.ts'

/**
 * A conversation is kept in the shape of OpenAI's Chat Completions, because every trainer, viewer and backend reads it: one and
 * the same JSON, written once per message, is sent, hashed, stored and exported. Messages are never changed after they were made.
 */
export type Message = SystemMessage | UserMessage | AssistantMessage | ToolMessage

export interface UserMessage {
  readonly role: 'user'
  readonly content: string | readonly ContentPart[]
  readonly name?: string
}

export interface SystemMessage extends Omit<UserMessage, 'role'> {
  readonly role: 'system' | 'developer'
}

export interface AssistantMessage {
  readonly role: 'assistant'
  readonly content: string | null
  readonly reasoning_content?: string
  readonly refusal?: string
  readonly tool_calls?: readonly ToolCall[]
  /** Parts of the reply that only one API has: calls of other tools than functions, audio, redacted thinking. */
  readonly others?: readonly OtherPart[]
  readonly name?: string
}

export interface ToolMessage {
  readonly role: 'tool'
  readonly tool_call_id: string
  readonly content: string | readonly ContentPart[]
  /** Whether the tool failed, where an API can say so. Chat cannot: backends of that API are not told. */
  readonly is_error?: boolean
}

export type ContentPart =
  | { readonly type: 'text'; readonly text: string }
  | {
      readonly type: 'image_url'
      readonly image_url: { readonly url: string; readonly detail?: 'auto' | 'low' | 'high' }
    }
  | OtherPart

/** A part that only one API knows (audio, a document, a search), kept as it came. It cannot be sent to another API. */
export interface OtherPart {
  readonly type: 'other'
  readonly api: ClientApi
  readonly value: Json
}

/** `arguments` is the text exactly as the model wrote it, valid JSON or not. */
export interface ToolCall {
  readonly id: string
  readonly type: 'function'
  readonly function: { readonly name: string; readonly arguments: string }
}

export interface ToolDefinition {
  readonly type: 'function'
  readonly function: {
    readonly name: string
    readonly description?: string
    readonly parameters: Record<string, unknown>
    /** Whether calls must follow `parameters` to the letter; the backend's own habit if not given. */
    readonly strict?: boolean
  }
}

const otherPartSchema = z.object({
  type: z.literal('other'),
  api: z.enum(['chat', 'responses', 'messages', 'generate']),
  value: jsonSchema,
})
const contentPartSchema = z.union([
  z.object({ type: z.literal('text'), text: z.string() }),
  z.object({
    type: z.literal('image_url'),
    image_url: z.object({ url: z.string(), detail: z.enum(['auto', 'low', 'high']).exactOptional() }),
  }),
  otherPartSchema,
])
const contentSchema = z.union([z.string(), z.array(contentPartSchema)])
const toolCallSchema = z.object({
  id: z.string(),
  type: z.literal('function'),
  function: z.object({ name: z.string(), arguments: z.string() }),
})

/** Validates messages where they enter: in task files and in what an environment's prompt returns. */
export const messageSchema: z.ZodType<Message> = z.discriminatedUnion('role', [
  z.object({ role: z.enum(['system', 'developer', 'user']), content: contentSchema, name: z.string().exactOptional() }),
  z.object({
    role: z.literal('assistant'),
    content: z.string().nullable(),
    reasoning_content: z.string().exactOptional(),
    refusal: z.string().exactOptional(),
    tool_calls: z.array(toolCallSchema).exactOptional(),
    others: z.array(otherPartSchema).exactOptional(),
    name: z.string().exactOptional(),
  }),
  z.object({
    role: z.literal('tool'),
    tool_call_id: z.string(),
    content: contentSchema,
    is_error: z.boolean().exactOptional(),
  }),
])

/** The text of a message, without images. A message from unchecked JSON may lack its content: that is no text, too. */
export function textOf({ content }: Message): string {
  return content ? partsText(content) : ''
}

export function partsText(content: string | readonly ContentPart[]): string {
  if (typeof content === 'string') return content
  return content.map((part) => (part.type === 'text' ? part.text : '')).join('')
}

/** The APIs in which a model can be asked for a turn, by us or by a client of ours. */
export type ApiName = 'chat' | 'responses' | 'messages'

/** The APIs of a gateway's clients. SGLang's own (`/generate`) can only be asked of a model that SGLang serves. */
export type ClientApi = ApiName | 'generate'

/** The path of each API below the base url of a server. */
export const apiPaths: Readonly<Record<ApiName, string>> = {
  chat: '/chat/completions',
  responses: '/responses',
  messages: '/messages',
}

/** The path to ask for the length of a prompt, in the APIs that have one. */
export const countPaths: Readonly<Record<Exclude<ApiName, 'chat'>, string>> = {
  responses: `${apiPaths.responses}/input_tokens`,
  messages: `${apiPaths.messages}/count_tokens`,
}
