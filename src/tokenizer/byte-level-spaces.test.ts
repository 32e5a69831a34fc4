import { expect, test } from 'vitest'
import type { Json } from '../schema/index.ts'
import { Tokenizer } from './tokenizer.ts'

/** Bytes as byte-level tokenizers write them. */
const bytes = (text: string): string[] =>
  Array.from(Buffer.from(text), (byte) => {
    const isShown = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte !== 0xad)
    return String.fromCodePoint(isShown ? byte : byteStandIns.indexOf(byte) + 256)
  })
const byteStandIns = Array.from({ length: 256 }, (_, byte) => byte).filter(
  (byte) => byte <= 0x20 || (byte >= 0x7f && byte <= 0xa0) || byte === 0xad,
)

/** One token for each byte, and one for two spaces in a row, which shows where texts are divided. */
function byteTokenizer(preTokenizer: Json): Tokenizer {
  const space = 'Ġ'
  const letters = Array.from({ length: 256 }, (_, byte) => bytes(String.fromCodePoint(byte)).at(-1) ?? '')
  const vocabulary = [...new Set([...letters, ...bytes('\ufeff\u0085'), `${space}${space}`])]
  return new Tokenizer(
    {
      added_tokens: [],
      normalizer: null,
      pre_tokenizer: preTokenizer,
      post_processor: null,
      decoder: { type: 'ByteLevel' },
      model: {
        type: 'BPE',
        vocab: Object.fromEntries(vocabulary.map((token, id) => [token, id])),
        merges: [[space, space]],
      },
    },
    {},
  )
}

// U+FEFF is no white space in the original library, and U+0085 is.
test.each([
  ['  \ufeff', ['\u0020', '\u0020', '\ufeff']],
  ['  \u0085', ['  ', '\u0085']],
  ['   x', ['  ', ' ', 'x']],
])('the built-in rule of a byte-level step divides %j as the original does', (text, pieces) => {
  const tokenizer = byteTokenizer({ type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true })
  const expected = pieces.flatMap((piece) => Array.from(tokenizer.encode(piece)))
  expect(Array.from(tokenizer.encode(text))).toEqual(expected)
  expect(tokenizer.decode(tokenizer.encode(text))).toBe(text)
})
