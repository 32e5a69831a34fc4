import { z } from 'zod'
import { jsonObjectSchema } from './any-json.ts'
import { closedObject } from './closed-object.ts'

/** How to sample a turn. `extra` goes into the request body as it is, for fields that only one backend knows. */
export const samplingSchema = closedObject({
  temperature: z.number().min(0).exactOptional(),
  topP: z.number().min(0).max(1).exactOptional(),
  maxTokens: z.number().int().positive().exactOptional(),
  stop: z.array(z.string()).exactOptional(),
  seed: z.number().int().exactOptional(),
  reasoningEffort: z.string().exactOptional(),
  extra: jsonObjectSchema.exactOptional(),
})

export type Sampling = z.infer<typeof samplingSchema>
