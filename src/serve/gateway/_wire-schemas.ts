import { z } from 'zod'

/**
 * The envelopes of the model APIs, for OpenAPI and for tests. A request is read by hand-written code (`src/dialects`), and
 * what it does not know goes on to the backend: so nothing here is strict.
 */

const stream = z.boolean().optional().describe('Server-sent events instead of one document.')
const model = z.string().describe('A name of `GET /v1/models`, or an alias.')
const tokens = z.int().min(0)

export const chatRequestSchema = z.looseObject({
  model,
  messages: z.array(z.looseObject({ role: z.enum(['system', 'developer', 'user', 'assistant', 'tool']) })).min(1),
  tools: z.array(z.looseObject({ type: z.string() })).optional(),
  stream,
})

export const chatReplySchema = z.looseObject({
  id: z.string(),
  object: z.literal('chat.completion'),
  created: z.number(),
  model: z.string(),
  choices: z.array(
    z.looseObject({
      index: z.int(),
      message: z.looseObject({
        role: z.literal('assistant'),
        content: z.string().nullable(),
        tool_calls: z
          .array(
            z.looseObject({
              id: z.string(),
              type: z.literal('function'),
              function: z.looseObject({ name: z.string(), arguments: z.string() }),
            }),
          )
          .optional(),
      }),
      finish_reason: z.string(),
    }),
  ),
  usage: z.looseObject({ prompt_tokens: tokens, completion_tokens: tokens, total_tokens: tokens }),
})

export const responsesRequestSchema = z.looseObject({
  model,
  input: z.union([z.string(), z.array(z.looseObject({}))]),
  instructions: z.string().nullish(),
  previous_response_id: z.string().nullish().describe('A reply of the same session.'),
  stream,
})

export const responsesReplySchema = z.looseObject({
  id: z.string(),
  object: z.literal('response'),
  created_at: z.number(),
  status: z.enum(['completed', 'incomplete']),
  model: z.string(),
  output: z.array(z.looseObject({ type: z.string() })),
  usage: z.looseObject({ input_tokens: tokens, output_tokens: tokens, total_tokens: tokens }),
})

export const messagesRequestSchema = z.looseObject({
  model,
  max_tokens: z.int().min(1),
  messages: z.array(z.looseObject({ role: z.enum(['user', 'assistant']) })).min(1),
  system: z.union([z.string(), z.array(z.looseObject({ type: z.string() }))]).optional(),
  stream,
})

export const messagesReplySchema = z.looseObject({
  id: z.string(),
  type: z.literal('message'),
  role: z.literal('assistant'),
  model: z.string(),
  content: z.array(z.looseObject({ type: z.string() })),
  stop_reason: z.string().nullable(),
  usage: z.looseObject({ input_tokens: tokens, output_tokens: tokens }),
})

export const responsesCountRequestSchema = responsesRequestSchema.omit({ stream: true })

export const responsesCountSchema = z.looseObject({
  object: z.literal('response.input_tokens'),
  input_tokens: tokens,
})

export const messagesCountRequestSchema = messagesRequestSchema.omit({ max_tokens: true, stream: true })

export const messagesCountSchema = z.looseObject({ input_tokens: tokens })

export const generateRequestSchema = z.looseObject({
  model: model.optional().describe('Needed if SGLang serves several models here. Not sent on.'),
  text: z.string().optional().describe('Either this or input_ids.'),
  input_ids: z.array(z.int().min(0)).optional(),
  sampling_params: z.looseObject({}).optional(),
  stream,
  rid: z.string().optional().describe('Names the request, and its reply.'),
})

export const generateReplySchema = z.looseObject({
  text: z.string(),
  output_ids: z.array(z.int()),
  meta_info: z.looseObject({
    id: z.string(),
    finish_reason: z.looseObject({ type: z.string() }).nullable(),
    prompt_tokens: tokens,
    completion_tokens: tokens,
  }),
})

export const sglangErrorSchema = z.looseObject({ error: z.looseObject({ message: z.string() }) })

export const openAiErrorSchema = z.looseObject({
  error: z.looseObject({
    message: z.string(),
    type: z.string(),
    param: z.string().nullable(),
    code: z.string().nullable(),
  }),
})

export const anthropicErrorSchema = z.looseObject({
  type: z.literal('error'),
  error: z.looseObject({ type: z.string(), message: z.string() }),
})

export const openAiModelSchema = z.looseObject({
  id: z.string(),
  object: z.literal('model'),
  created: z.number(),
  owned_by: z.string(),
})

export const openAiModelsSchema = z.object({ object: z.literal('list'), data: z.array(openAiModelSchema) })

export const anthropicModelSchema = z.looseObject({
  type: z.literal('model'),
  id: z.string(),
  display_name: z.string(),
  created_at: z.string(),
})

export const anthropicModelsSchema = z.object({
  data: z.array(anthropicModelSchema),
  has_more: z.boolean(),
  first_id: z.string().nullable(),
  last_id: z.string().nullable(),
})
