import { z } from 'zod'
import { closedObject, jsonObjectSchema } from '../schema/index.ts'

/** US dollars per million tokens. */
export const priceSchema = closedObject({
  input: z.number().min(0),
  cachedInput: z.number().min(0).exactOptional(),
  output: z.number().min(0),
})

export type Price = z.infer<typeof priceSchema>

const backendConfigSchema = closedObject({
  /** Up to and including the version, as clients write it: `http://localhost:8000/v1`. */
  url: z.string(),
  /** The name of the environment variable that holds the key; never the key itself, so that a config can be stored. */
  apiKeyEnv: z.string().default('OPENAI_API_KEY'),
  headers: z.record(z.string(), z.string()).default({}),
  /** PEM file with the certificate authority of a private endpoint; NODE_EXTRA_CA_CERTS works too. */
  caFile: z.string().exactOptional(),
  /** The server software, which decides how it is asked for tokens. A gateway finds out by itself; the default is vLLM's way. */
  engine: z.enum(['vllm', 'sglang']).exactOptional(),
  /**
   * What the server's log-probabilities are: those of the model (`raw`), or those after temperature, penalties and masks
   * (`processed`). Default: what the engine does unless it is started otherwise, `raw` for vLLM and `processed` for SGLang.
   */
  logprobs: z.enum(['raw', 'processed']).exactOptional(),
})

export type BackendConfig = z.infer<typeof backendConfigSchema>

/**
 * A named model: where it is served and how much may be asked of it. Plain data; workers open it by themselves.
 * Closed, because a misspelt limit that is silently ignored shows only when it should have held.
 */
export const modelConfigSchema = closedObject({
  name: z.string(),
  /** The backends' name for the model, if it differs. */
  upstreamName: z.string().exactOptional(),
  /** Either real backends or the simulator (its options), never both. */
  backends: z.array(backendConfigSchema).default([]),
  simulator: jsonObjectSchema.exactOptional(),
  api: z.enum(['chat', 'responses', 'messages']).default('chat'),
  stream: z.boolean().default(false),
  /** Whether earlier reasoning goes back to the backend with the history. */
  sendReasoning: z.boolean().default(true),
  price: priceSchema.exactOptional(),
  maxConcurrency: z.number().int().positive().default(64),
  adaptive: z.boolean().default(true),
  requestsPerMinute: z.number().positive().exactOptional(),
  tokensPerMinute: z.number().positive().exactOptional(),
  maxTries: z.number().int().positive().default(6),
  /**
   * The longest one call waits in all for a backend to take it: for a permit, a rate limit, between tries, parked. Time on
   * the wire does not count. Default: no limit of its own, or five minutes in a gateway.
   */
  maxWaitMs: z.number().positive().exactOptional(),
  /** The longest part of that which a call waits because backends answer 429. Default: no limit, or a minute in a gateway. */
  maxRateLimitWaitMs: z.number().positive().exactOptional(),
  connectTimeoutMs: z.number().positive().default(10_000),
  /** The time for one try, from the first byte sent to the last received. */
  requestTimeoutMs: z.number().positive().default(600_000),
  /** The longest silence between two pieces of a stream. */
  idleTimeoutMs: z.number().positive().default(120_000),
})

export type ModelConfig = z.infer<typeof modelConfigSchema>
export type ModelConfigInput = z.input<typeof modelConfigSchema>

/** A model's config in a file of models, where its key can be its name. */
export const namedModelSchema = modelConfigSchema.partial({ name: true })

/** A model as it was written under its key. A `name` inside is what its backends call it. */
export type NamedModelInput = z.input<typeof namedModelSchema>
