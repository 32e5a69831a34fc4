import { hash } from 'node:crypto'
import { z } from 'zod'
import type { JudgeRequest } from '../env/index.ts'
import { MillraceError, type WireError } from '../errors/index.ts'
import { messageSchema, usageSchema, type AssistantMessage, type Json, type Usage } from '../schema/index.ts'

/** What a judge said to one question: the data of a `judge-call` event. */
export interface RecordedVerdict {
  /** The digest of the question; two questions of one digest are the same. */
  readonly request: string
  readonly model: string
  readonly reply: AssistantMessage
  readonly usage: Usage
  readonly cost: number | null
  /** How many verdicts the session had from earlier sittings, which it asked for again; left out if none. */
  readonly earlier?: number
}

const verdictSchema = z.object({
  request: z.string(),
  model: z.string(),
  reply: messageSchema.refine((message) => message.role === 'assistant'),
  usage: usageSchema,
  cost: z.number().nullable(),
  earlier: z.number().optional(),
})

/** A recorded event as a verdict; undefined for an event that was recorded before questions were kept, or is no verdict. */
export function verdictOf(data: Json): RecordedVerdict | undefined {
  const parsed = verdictSchema.safeParse(data)
  if (!parsed.success) return undefined
  const { reply, earlier, ...rest } = parsed.data
  return reply.role === 'assistant' ? { ...rest, reply, ...(earlier !== undefined && { earlier }) } : undefined
}

/** The digest of a question to the judge `model`. */
export function questionDigest(model: string, { messages, temperature, maxTokens }: JudgeRequest): string {
  return hash('sha256', JSON.stringify([model, messages, temperature ?? null, maxTokens ?? null]), 'base64url')
}

/**
 * Verdicts to be given again: the same question gets the same verdict, and equal questions get theirs in order. With `repeats`,
 * for rewards that are not those of the run, the last verdict is given again if the question is asked more often.
 */
export class VerdictReader {
  readonly #verdicts = new Map<string, RecordedVerdict[]>()
  readonly #end: WireError | undefined
  readonly #repeats: boolean

  constructor(verdicts: readonly RecordedVerdict[], end: WireError | undefined, { repeats = false } = {}) {
    for (const verdict of verdicts) {
      const known = this.#verdicts.get(verdict.request)
      if (known) known.push(verdict)
      else this.#verdicts.set(verdict.request, [verdict])
    }
    this.#end = end
    this.#repeats = repeats
  }

  /** The recorded verdict; undefined if the judge is to be asked. */
  take(question: string): RecordedVerdict | undefined {
    const left = this.#verdicts.get(question)
    const verdict = this.#repeats && left?.length === 1 ? left[0] : left?.shift()
    if (!verdict && this.#end) throw MillraceError.fromWire(this.#end)
    return verdict
  }
}
