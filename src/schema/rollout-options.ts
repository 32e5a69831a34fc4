import { z } from 'zod'
import { closedObject, jsonObjectSchema } from './validation.ts'

/**
 * One rollout's budget. `timeoutMs` is working time: the clock stands still while the rollout waits for a permit, a rate
 * limit or a parked backend. `wallTimeoutMs` never stands still and ends the rollout as `infra_timeout`.
 * `tailMs` is kept back for reward and teardown; the agent cannot spend it.
 */
export const limitsSchema = closedObject({
  maxTurns: z.number().int().positive(),
  maxTokens: z.number().int().positive().exactOptional(),
  maxCostUsd: z.number().positive().exactOptional(),
  timeoutMs: z.number().positive(),
  wallTimeoutMs: z.number().positive(),
  tailMs: z.number().positive(),
})

export type Limits = z.infer<typeof limitsSchema>

export const defaultLimits: Limits = {
  maxTurns: 50,
  timeoutMs: 30 * 60_000,
  wallTimeoutMs: 6 * 3_600_000,
  tailMs: 2 * 60_000,
}

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
