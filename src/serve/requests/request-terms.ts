import { z } from 'zod'
import { MillraceError } from '../../errors/index.ts'
import type { RolloutTerms } from '../../rollout/index.ts'
import { type Message, messageSchema, type Sampling, samplingSchema } from '../../schema/index.ts'

/** What a request says of all its rollouts, whatever their tasks. The same id stands for the same terms. */
export interface RequestTerms {
  readonly sampling?: Sampling
  /** The conversations begin with these instead of the environment's prompt. */
  readonly messages?: readonly Message[]
  /** No reward is computed: the rollouts end as they end, without one. */
  readonly scored?: false
}

/** As they are journalled. */
export const termsSchema: z.ZodType<RequestTerms> = z.object({
  sampling: samplingSchema.exactOptional(),
  messages: z.array(messageSchema).exactOptional(),
  scored: z.literal(false).exactOptional(),
})

export function requestTerms({ sampling, messages, scored }: RequestTerms): RequestTerms {
  return { ...(sampling && { sampling }), ...(messages && { messages }), ...(scored === false && { scored }) }
}

export function rolloutTerms({ sampling, messages, scored }: RequestTerms): Omit<RolloutTerms, 'task' | 'recording'> {
  return {
    ...(sampling && { sampling }),
    ...(messages && { opening: { messages } }),
    ...(scored === false && { isScored: scored }),
  }
}

/** What of the digest of a request comes from its terms: for one without messages, what it always was. */
export function termsDigest({ sampling, messages, scored }: RequestTerms, attempts: number): string {
  const plain = [attempts, sampling ?? null]
  const isPlain = !messages && scored !== false
  return JSON.stringify(isPlain ? plain : [...plain, messages ?? null, scored !== false])
}

/** What each rollout of a request holds beside its task while it waits. */
export function messageBytes({ messages }: RequestTerms, maxBytes = Number.POSITIVE_INFINITY): number {
  if (!messages) return 0
  const bytes = Buffer.byteLength(JSON.stringify(messages))
  if (bytes <= maxBytes) return bytes
  throw new MillraceError('usage', `messages has ${bytes} bytes, and it may have ${maxBytes}, like a task`)
}
