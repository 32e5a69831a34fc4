import type { DialectRequest } from '../../dialects/index.ts'

/** What a client is shown of replies of a backend that was not asked exactly what the client asked. */
export interface ClientView {
  /**
   * A reply or an event of one as the client sees it: the document itself if the client may see all of it. Undefined for an
   * event that has nothing for the client.
   */
  of(document: object): object | undefined
}

interface ChatWire {
  readonly choices?: unknown
  readonly usage?: unknown
}

interface ChoiceWire {
  readonly logprobs?: unknown
}

/** The fields in which vLLM and SGLang report tokens, each with the fields of a request that ask for it. */
const tokenFields: readonly (readonly [field: string, askedBy: readonly string[]])[] = [
  ['token_ids', ['return_token_ids']],
  ['response_token_ids', ['return_token_ids']],
  ['prompt_token_ids', ['return_token_ids', 'return_prompt_token_ids']],
  ['routed_experts', ['return_token_ids', 'return_routed_experts']],
  ['meta_info', ['return_meta_info']],
  ['sgl_ext', ['return_routed_experts', 'return_cached_tokens_details']],
  ['sglext', ['return_routed_experts', 'return_cached_tokens_details']],
]

const allFields = tokenFields.map(([field]) => field)
const allFlags = [...new Set(tokenFields.flatMap(([, flags]) => flags))]

/** Whether the client itself asked for tokens. */
export function asksForTokens({ wantsLogprobs, body }: DialectRequest): boolean {
  return wantsLogprobs || allFlags.some((flag) => body[flag] === true)
}

/** Without what a client of Chat Completions did not ask for. */
export class ChatView implements ClientView {
  /** Fields to leave out of a reply, and of its choices. */
  readonly #replyFields: readonly string[]
  readonly #choiceFields: readonly string[]
  readonly #hidesLogprobs: boolean
  /** Whether usage is left out: only of streams, because whole replies have it anyway. */
  readonly #hidesUsage: boolean

  constructor(request: DialectRequest) {
    const { wantsLogprobs, stream, includeUsage, body } = request
    this.#choiceFields = asksForTokens(request)
      ? tokenFields.flatMap(([field, flags]) => (flags.some((flag) => body[flag] === true) ? [] : [field]))
      : allFields
    this.#hidesLogprobs = !wantsLogprobs
    this.#hidesUsage = stream && !includeUsage
    this.#replyFields = this.#hidesUsage ? [...this.#choiceFields, 'usage'] : this.#choiceFields
  }

  of(document: object): object | undefined {
    const { choices, usage }: ChatWire = document
    const seen = without(document, this.#replyFields)
    if (!Array.isArray(choices)) return seen
    if (this.#hidesUsage && usage && choices.length === 0) return undefined
    const seenChoices = choices.map(this.#choice)
    return seenChoices.every((choice, index) => choice === choices[index]) ? seen : { ...seen, choices: seenChoices }
  }

  readonly #choice = (choice: unknown): unknown => {
    if (typeof choice !== 'object' || choice === null) return choice
    const seen: ChoiceWire = without(choice, this.#choiceFields)
    // `logprobs` becomes null, because the API has the field in every choice.
    return this.#hidesLogprobs && seen.logprobs ? { ...seen, logprobs: null } : seen
  }
}

/**
 * An object as it is without the fields: itself, if it has none of them. In a copy they are undefined, which JSON leaves out.
 * Deleting them would slow down V8's access to all others.
 */
export function without(holder: object, fields: readonly string[]): object {
  const members = holder as Readonly<Record<string, unknown>>
  if (!fields.some((field) => members[field] !== undefined)) return holder
  const seen: Record<string, unknown> = { ...members }
  for (const field of fields) if (seen[field] !== undefined) seen[field] = undefined
  return seen
}
