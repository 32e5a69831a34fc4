import { Tokenizer as HuggingFaceTokenizer } from '@huggingface/tokenizers'
import { MillraceError } from '../errors/index.ts'
import { isJsonList, isJsonObject, type Json, type JsonObject } from '../schema/index.ts'

/** The longest text whose ids are remembered, and how many characters are remembered in all. */
const maxKeptText = 64 * 1024
const maxKeptCharacters = 2 * 1024 * 1024

/** The tokenizer of a model, from its `tokenizer.json`. Encodes and decodes exactly what it is given: nothing is added or cleaned up. */
export class Tokenizer {
  readonly #tokenizer: HuggingFaceTokenizer
  readonly #special: ReadonlySet<number>
  readonly #specialPattern: RegExp | undefined
  /** Ids of the texts between special tokens, the latest last: system prompts and tools occur in every conversation. */
  readonly #kept = new Map<string, Int32Array<ArrayBuffer>>()
  #keptCharacters = 0

  constructor(tokenizer: JsonObject, config: JsonObject) {
    const readable = { ...tokenizer, pre_tokenizer: withPythonSpaces(tokenizer['pre_tokenizer']) }
    this.#tokenizer = parsedTokenizer(readable, { ...config, clean_up_tokenization_spaces: false })
    this.#special = new Set(this.#tokenizer.get_added_tokens_decoder().keys())
    const texts = separators(tokenizer).toSorted((one, other) => other.length - one.length)
    this.#specialPattern =
      texts.length > 0 ? new RegExp(`(${texts.map((text) => RegExp.escape(text)).join('|')})`) : undefined
  }

  /** The ids of a text. A special token that is written in the text becomes its id, as in every chat template. */
  encode(text: string): Int32Array<ArrayBuffer> {
    return text === '' ? new Int32Array() : Int32Array.from(this.#encode(text))
  }

  /** The same for a text of many parts between special tokens, some of which occurred before. */
  encodeParts(text: string): readonly Int32Array<ArrayBuffer>[] {
    return this.partsOf(text).map((part) => this.encodePart(part))
  }

  /** The special tokens of a text, and the texts between them. */
  partsOf(text: string): string[] {
    const parts = this.#specialPattern ? text.split(this.#specialPattern) : [text]
    return parts.filter((part) => part !== '')
  }

  encodePart(part: string): Int32Array<ArrayBuffer> {
    const known = this.known(part)
    if (known) return known
    const ids = this.encode(part)
    this.keep(part, ids)
    return ids
  }

  /** The ids of a part that is remembered. */
  known(part: string): Int32Array<ArrayBuffer> | undefined {
    const ids = this.#kept.get(part)
    if (!ids) return undefined
    this.#kept.delete(part)
    this.#kept.set(part, ids)
    return ids
  }

  /** Remembers the ids of a part that was encoded elsewhere. */
  keep(part: string, ids: Int32Array<ArrayBuffer>): void {
    if (part.length > maxKeptText || this.#kept.has(part)) return
    this.#kept.set(part, ids)
    this.#keptCharacters += part.length
    for (const oldest of this.#kept.keys()) {
      if (this.#keptCharacters <= maxKeptCharacters) break
      this.#kept.delete(oldest)
      this.#keptCharacters -= oldest.length
    }
  }

  #encode(text: string): number[] {
    return this.#tokenizer.encode(text, { add_special_tokens: false }).ids
  }

  /** The text of ids, special tokens included. Bytes that are not UTF-8 become U+FFFD. */
  decode(ids: Int32Array | readonly number[]): string {
    return ids.length === 0 ? '' : this.#tokenizer.decode(Array.from(ids), { skip_special_tokens: false })
  }

  /** Whether a token stands for itself, whatever is beside it: text is split at such tokens before anything else. */
  isSpecial(id: number): boolean {
    return this.#special.has(id)
  }

  idOf(token: string): number | undefined {
    return this.#tokenizer.token_to_id(token)
  }
}

function parsedTokenizer(tokenizer: JsonObject, config: JsonObject): HuggingFaceTokenizer {
  try {
    return new HuggingFaceTokenizer(tokenizer, config)
  } catch (error) {
    throw new MillraceError('config_invalid', `tokenizer.json of the model cannot be used: ${String(error)}`, {
      cause: error,
    })
  }
}

/** The special tokens that take no white space with them, so that the texts between them can be encoded one by one. */
function separators({ added_tokens: added }: JsonObject): string[] {
  return (isJsonList(added) ? added : []).flatMap((token) => {
    if (!isJsonObject(token)) return []
    const { content, special, lstrip, rstrip } = token
    return typeof content === 'string' && special === true && !lstrip && !rstrip ? [content] : []
  })
}

/** The rule of GPT-2, which a byte-level step has built in. */
const wordsOfGpt2 = String.raw`'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`

/**
 * White space is what it is in the original library. The one in JavaScript takes care of that in rules that a file spells out,
 * but not in its built-in one, so that one is spelled out here.
 */
function withPythonSpaces(step: Json | undefined): Json {
  if (!isJsonObject(step)) return step ?? null
  const { type, pretokenizers: steps, use_regex: splits = true, add_prefix_space: addsSpace } = step
  if (type === 'Sequence' && isJsonList(steps)) return { ...step, pretokenizers: steps.map(withPythonSpaces) }
  if (type !== 'ByteLevel' || splits !== true || addsSpace === true) return step
  const words = { type: 'Split', pattern: { Regex: wordsOfGpt2 }, behavior: 'Isolated', invert: false }
  return { type: 'Sequence', pretokenizers: [words, { ...step, use_regex: false }] }
}
