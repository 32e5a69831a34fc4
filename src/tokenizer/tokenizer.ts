import { Tokenizer as HuggingFaceTokenizer } from '@huggingface/tokenizers'
import type { JsonObject } from '../schema/index.ts'

/** The tokenizer of a model, from its `tokenizer.json`. Encodes and decodes exactly what it is given: nothing is added or cleaned up. */
export class Tokenizer {
  readonly #tokenizer: HuggingFaceTokenizer
  readonly #special: ReadonlySet<number>

  constructor(tokenizer: JsonObject, config: JsonObject) {
    this.#tokenizer = new HuggingFaceTokenizer(tokenizer, { ...config, clean_up_tokenization_spaces: false })
    this.#special = new Set(this.#tokenizer.get_added_tokens_decoder().keys())
  }

  /** The ids of a text. A special token that is written in the text becomes its id, as in every chat template. */
  encode(text: string): Int32Array<ArrayBuffer> {
    if (text === '') return new Int32Array()
    return Int32Array.from(this.#tokenizer.encode(text, { add_special_tokens: false }).ids)
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

  /** Every token with its id. */
  vocabulary(): ReadonlyMap<string, number> {
    return this.#tokenizer.get_vocab(true)
  }
}
