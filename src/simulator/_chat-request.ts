import { z } from 'zod'
import { MillraceError } from '../errors/index.ts'
import { describeIssues, messageSchema, type Sampling } from '../schema/index.ts'
import type { ToolChoice } from '../inference/index.ts'
import type { WireRequest } from './_dialect.ts'

const toolSchema = z.object({
  type: z.literal('function'),
  function: z.object({
    name: z.string().min(1),
    description: z.string().exactOptional(),
    parameters: z.record(z.string(), z.unknown()).default({ type: 'object', properties: {} }),
  }),
})

/** The sampling fields that both APIs have in common. */
export const samplingFields = {
  temperature: z.number().min(0).nullish(),
  top_p: z.number().min(0).max(1).nullish(),
  seed: z.number().int().nullish(),
  stop: z.union([z.string(), z.array(z.string())]).nullish(),
  stream: z.boolean().nullish(),
}

const bodySchema = z.object({
  ...samplingFields,
  model: z.string(),
  // Servers of engines accept what clients leave out or set to null; the schema of messages does not.
  messages: z.array(z.preprocess(withoutNulls, messageSchema)).min(1),
  tools: z.array(toolSchema).nullish(),
  tool_choice: z
    .union([
      z.enum(['auto', 'none', 'required']),
      z.object({ type: z.literal('function'), function: z.object({ name: z.string() }) }),
    ])
    .nullish(),
  max_tokens: z.number().int().positive().nullish(),
  max_completion_tokens: z.number().int().positive().nullish(),
  n: z.literal(1, { error: 'only 1 is supported; send several requests instead' }).nullish(),
  stream_options: z.object({ include_usage: z.boolean().nullish() }).nullish(),
  logprobs: z.boolean().nullish(),
  return_token_ids: z.boolean().nullish(),
})

/** Reads the body of a chat completion request. */
export function readChatRequest(raw: unknown): WireRequest {
  const body = validBody(bodySchema, raw)
  const maxTokens = body.max_completion_tokens ?? body.max_tokens
  const wantsTokenIds = body.return_token_ids === true
  const wantsLogprobs = body.logprobs === true
  return {
    model: body.model,
    stream: body.stream === true,
    includeUsage: body.stream_options?.include_usage === true,
    wantsTokenIds,
    wantsLogprobs,
    request: {
      messages: body.messages,
      tools: body.tools ?? [],
      toolChoice: chosenTool(body.tool_choice),
      sampling: readSampling(body, maxTokens),
      captureTokens: wantsTokenIds || wantsLogprobs,
      sessionId: '',
    },
  }
}

export function validBody<Schema extends z.ZodType>(schema: Schema, raw: unknown): z.output<Schema> {
  const parsed = schema.safeParse(raw)
  if (parsed.success) return parsed.data
  throw new MillraceError('model_rejected', `the request is not valid: ${describeIssues(parsed.error.issues)}`, {
    data: { status: 400, param: parsed.error.issues[0]?.path.join('.') },
  })
}

export function readSampling(
  body: { readonly seed?: number | null | undefined; readonly stop?: string | string[] | null | undefined },
  maxTokens: number | null | undefined,
): Sampling {
  const { seed, stop } = body
  return {
    ...(typeof seed === 'number' ? { seed } : {}),
    ...(typeof maxTokens === 'number' ? { maxTokens } : {}),
    ...(stop === null || stop === undefined ? {} : { stop: typeof stop === 'string' ? [stop] : stop }),
  }
}

function chosenTool(choice: z.output<typeof bodySchema>['tool_choice']): ToolChoice {
  if (typeof choice === 'object' && choice !== null) return { name: choice.function.name }
  return choice ?? 'auto'
}

function withoutNulls(raw: unknown): unknown {
  if (typeof raw !== 'object' || raw === null || !('role' in raw)) return raw
  if (raw.role !== 'assistant') return raw
  const { content, reasoning_content, refusal, tool_calls } = raw as Record<string, unknown>
  return {
    role: raw.role,
    content: joinedText(content) ?? null,
    ...(reasoning_content === null || reasoning_content === undefined ? {} : { reasoning_content }),
    ...(refusal === null || refusal === undefined ? {} : { refusal }),
    ...(tool_calls === null || tool_calls === undefined ? {} : { tool_calls }),
  }
}

/** An assistant's text may come back in parts. */
function joinedText(content: unknown): unknown {
  if (!Array.isArray(content)) return content
  return content.map((part: { text?: unknown }) => (typeof part.text === 'string' ? part.text : '')).join('')
}
