import { z } from 'zod'
import { readSampling, samplingFields, validBody } from './_chat-request.ts'
import type { ToolChoice } from '../inference/index.ts'
import type { ContentPart, Message, ToolCall } from '../schema/index.ts'
import type { WireRequest } from './_dialect.ts'

const partSchema = z.union([
  z.object({ type: z.enum(['input_text', 'output_text', 'text', 'summary_text', 'reasoning_text']), text: z.string() }),
  z.object({ type: z.literal('refusal'), refusal: z.string() }),
  z.object({ type: z.literal('input_image'), image_url: z.string() }),
])
const contentSchema = z.union([z.string(), z.array(partSchema)])

const messageItemSchema = z.object({
  type: z.literal('message').optional(),
  role: z.enum(['system', 'developer', 'user', 'assistant']),
  content: contentSchema,
})

const itemSchema = z.union([
  z.object({ type: z.literal('function_call'), call_id: z.string(), name: z.string(), arguments: z.string() }),
  z.object({ type: z.literal('function_call_output'), call_id: z.string(), output: contentSchema }),
  z.object({
    type: z.literal('reasoning'),
    summary: z.array(partSchema).optional(),
    content: z.array(partSchema).nullish(),
  }),
  messageItemSchema,
])

type Item = z.output<typeof itemSchema>

const bodySchema = z.object({
  ...samplingFields,
  model: z.string(),
  input: z.union([z.string(), z.array(itemSchema).min(1)]),
  instructions: z.string().nullish(),
  tools: z
    .array(
      z.object({
        type: z.literal('function'),
        name: z.string().min(1),
        description: z.string().nullish(),
        parameters: z.record(z.string(), z.unknown()).nullish(),
      }),
    )
    .nullish(),
  tool_choice: z
    .union([z.enum(['auto', 'none', 'required']), z.object({ type: z.literal('function'), name: z.string() })])
    .nullish(),
  max_output_tokens: z.number().int().positive().nullish(),
  previous_response_id: z.null({ error: 'replies are not kept; send the whole conversation as input' }).optional(),
})

/** Reads the body of a Responses request: its items become the messages of a chat. */
export function readResponsesRequest(raw: unknown): WireRequest {
  const body = validBody(bodySchema, raw)
  const messages: Message[] = body.instructions ? [{ role: 'system', content: body.instructions }] : []
  if (typeof body.input === 'string') messages.push({ role: 'user', content: body.input })
  else appendItems(messages, body.input)
  return {
    model: body.model,
    stream: body.stream === true,
    includeUsage: true,
    wantsTokenIds: false,
    wantsLogprobs: false,
    request: {
      messages,
      tools: (body.tools ?? []).map((tool) => ({
        type: 'function',
        function: {
          name: tool.name,
          ...(tool.description ? { description: tool.description } : {}),
          parameters: tool.parameters ?? { type: 'object', properties: {} },
        },
      })),
      toolChoice: chosenTool(body.tool_choice),
      sampling: readSampling(body, body.max_output_tokens),
      captureTokens: false,
      sessionId: '',
    },
  }
}

function chosenTool(choice: z.output<typeof bodySchema>['tool_choice']): ToolChoice {
  if (typeof choice === 'object' && choice !== null) return { name: choice.name }
  return choice ?? 'auto'
}

/** What a model sent in one turn comes back as several items; they are one assistant message again here. */
interface Turn {
  content: string | null
  reasoning: string | undefined
  readonly calls: ToolCall[]
}

function appendItems(messages: Message[], items: readonly Item[]): void {
  let turn: Turn | undefined
  const endTurn = (): void => {
    if (!turn) return
    messages.push({
      role: 'assistant',
      content: turn.content,
      ...(turn.reasoning === undefined ? {} : { reasoning_content: turn.reasoning }),
      ...(turn.calls.length > 0 ? { tool_calls: turn.calls } : {}),
    })
    turn = undefined
  }
  for (const item of items) {
    if (item.type === 'function_call') {
      turn ??= { content: null, reasoning: undefined, calls: [] }
      turn.calls.push({
        id: item.call_id,
        type: 'function',
        function: { name: item.name, arguments: item.arguments },
      })
    } else if (item.type === 'reasoning') {
      endTurn()
      turn = { content: null, reasoning: plainText(item.content ?? item.summary ?? []), calls: [] }
    } else if (item.type === 'function_call_output') {
      endTurn()
      messages.push({ role: 'tool', tool_call_id: item.call_id, content: contentOf(item.output) })
    } else if (item.role === 'assistant') {
      // Text after a call begins a new turn: within one turn a model speaks first.
      if (turn && (turn.content !== null || turn.calls.length > 0)) endTurn()
      turn ??= { content: null, reasoning: undefined, calls: [] }
      turn.content = plainText(item.content)
    } else {
      endTurn()
      messages.push({ role: item.role, content: contentOf(item.content) })
    }
  }
  endTurn()
}

function contentOf(content: z.output<typeof contentSchema>): string | ContentPart[] {
  if (typeof content === 'string') return content
  if (content.every((part) => part.type !== 'input_image')) return plainText(content)
  return content.map((part): ContentPart => {
    if (part.type === 'input_image') return { type: 'image_url', image_url: { url: part.image_url } }
    return { type: 'text', text: part.type === 'refusal' ? part.refusal : part.text }
  })
}

function plainText(content: z.output<typeof contentSchema>): string {
  if (typeof content === 'string') return content
  return content.map((part) => ('text' in part ? part.text : '')).join('')
}
