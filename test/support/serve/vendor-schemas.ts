import { z } from 'zod'

/** The envelopes of the vendors' APIs, which the gateway's own replies are held to. A backend may add fields, so nothing is strict. */

const tokens = z.int().min(0)

const chatReplySchema = z.looseObject({
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

const responsesReplySchema = z.looseObject({
  id: z.string(),
  object: z.literal('response'),
  created_at: z.number(),
  status: z.enum(['completed', 'incomplete']),
  model: z.string(),
  output: z.array(z.looseObject({ type: z.string() })),
  usage: z.looseObject({ input_tokens: tokens, output_tokens: tokens, total_tokens: tokens }),
})

const messagesReplySchema = z.looseObject({
  id: z.string(),
  type: z.literal('message'),
  role: z.literal('assistant'),
  model: z.string(),
  content: z.array(z.looseObject({ type: z.string() })),
  stop_reason: z.string().nullable(),
  usage: z.looseObject({ input_tokens: tokens, output_tokens: tokens }),
})

const responsesCountSchema = z.looseObject({
  object: z.literal('response.input_tokens'),
  input_tokens: tokens,
})

const messagesCountSchema = z.looseObject({ input_tokens: tokens })

const generateReplySchema = z.looseObject({
  text: z.string(),
  output_ids: z.array(z.int()),
  meta_info: z.looseObject({
    id: z.string(),
    finish_reason: z.looseObject({ type: z.string() }).nullable(),
    prompt_tokens: tokens,
    completion_tokens: tokens,
  }),
})

const sglangErrorSchema = z.looseObject({ error: z.looseObject({ message: z.string() }) })

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

const openAiModelSchema = z.looseObject({
  id: z.string(),
  object: z.literal('model'),
  created: z.number(),
  owned_by: z.string(),
})

const openAiModelsSchema = z.object({ object: z.literal('list'), data: z.array(openAiModelSchema) })

const anthropicModelSchema = z.looseObject({
  type: z.literal('model'),
  id: z.string(),
  display_name: z.string(),
  created_at: z.string(),
})

const anthropicModelsSchema = z.object({
  data: z.array(anthropicModelSchema),
  has_more: z.boolean(),
  first_id: z.string().nullable(),
  last_id: z.string().nullable(),
})

/** The replies and the errors of a route that follows a vendor's API. */
export interface VendorShapes {
  readonly reply: z.ZodType
  readonly error: z.ZodType
}

const modelError = z.union([openAiErrorSchema, anthropicErrorSchema])

const shapes: Readonly<Record<string, VendorShapes>> = {
  '/v1/models': { reply: z.union([openAiModelsSchema, anthropicModelsSchema]), error: modelError },
  '/v1/models/{model}': { reply: z.union([openAiModelSchema, anthropicModelSchema]), error: modelError },
  '/v1/chat/completions': { reply: chatReplySchema, error: openAiErrorSchema },
  '/v1/responses': { reply: responsesReplySchema, error: openAiErrorSchema },
  '/v1/messages': { reply: messagesReplySchema, error: anthropicErrorSchema },
  '/v1/responses/input_tokens': { reply: responsesCountSchema, error: openAiErrorSchema },
  '/v1/messages/count_tokens': { reply: messagesCountSchema, error: anthropicErrorSchema },
  '/generate': { reply: generateReplySchema, error: sglangErrorSchema },
}

/** By path, below the root or below a session. */
export function vendorShapes(path: string): VendorShapes | undefined {
  return shapes[path.replace(/^\/sessions\/\{id\}/, '')]
}
