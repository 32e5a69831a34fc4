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
  /** Fields to leave out of a reply and of its choices. */
  readonly #fields: readonly string[]
  readonly #logprobs: boolean
  /** Whether usage is left out of a stream. */
  readonly #usage: boolean

  constructor(request: DialectRequest) {
    const { wantsLogprobs, stream, includeUsage, body } = request
    this.#fields = asksForTokens(request)
      ? tokenFields.flatMap(([field, flags]) => (flags.some((flag) => body[flag] === true) ? [] : [field]))
      : allFields
    this.#logprobs = !wantsLogprobs
    this.#usage = stream && !includeUsage
  }

  of(document: object): object | undefined {
    const { choices, usage }: ChatWire = document
    if (this.#usage && usage && Array.isArray(choices) && choices.length === 0) return undefined
    const list: readonly unknown[] = Array.isArray(choices) ? choices : none
    const hidesUsage = this.#usage && usage !== undefined
    if (!hidesUsage && list.every(this.#isPlain) && !hasAny(document, this.#fields)) return document
    const seen = without(document, this.#fields)
    if (Array.isArray(choices)) seen['choices'] = list.map((choice) => this.#choice(choice))
    if (hidesUsage) seen['usage'] = undefined
    return seen
  }

  /** Whether nothing is left out of a choice. The scanner leaves whole replies like that. */
  readonly #isPlain = (choice: unknown): boolean => {
    if (typeof choice !== 'object' || choice === null) return true
    const { logprobs }: ChoiceWire = choice
    const hidesLogprobs = this.#logprobs && logprobs !== undefined && logprobs !== null
    return !hidesLogprobs && !hasAny(choice, this.#fields)
  }

  #choice(choice: unknown): unknown {
    if (typeof choice !== 'object' || choice === null) return choice
    const seen = without(choice, this.#fields)
    // `logprobs` becomes null, because the API has the field in every choice.
    if (this.#logprobs && seen['logprobs'] !== undefined) seen['logprobs'] = null
    return seen
  }
}

const none: readonly unknown[] = []

function hasAny(holder: object, fields: readonly string[]): boolean {
  const members = holder as Readonly<Record<string, unknown>>
  return fields.some((field) => members[field] !== undefined)
}

/** A copy in which the fields are undefined, which JSON leaves out. Deleting them would slow down V8's access to all others. */
export function without(holder: object, fields: readonly string[]): Record<string, unknown> {
  const seen: Record<string, unknown> = { ...holder }
  for (const field of fields) if (seen[field] !== undefined) seen[field] = undefined
  return seen
}
