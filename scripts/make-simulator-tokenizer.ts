import { globSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

/** Trains the tokenizer in assets/simulator: byte-level BPE on the texts of the docs. The result is a file of the repository. */

const root = join(import.meta.dirname, '..')
const merges = 700
/** Tokens that stand for themselves. Only the first three are special: the others are ordinary text to readers. */
const added = [
  '<|endoftext|>',
  '<|im_start|>',
  '<|im_end|>',
  '<think>',
  '</think>',
  '<tool_call>',
  '</tool_call>',
  '<tool_response>',
  '</tool_response>',
]
const specialCount = 3
/** GPT-2's way to divide text, which is that of `ByteLevel` in tokenizer.json. */
const word = /'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+/gu

/** The characters by which byte-level tokenizers write bytes. */
function byteLetters(): string[] {
  const isPlain = (byte: number): boolean =>
    (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || (byte >= 174 && byte <= 255)
  let next = 256
  return Array.from({ length: 256 }, (_, byte) => String.fromCodePoint(isPlain(byte) ? byte : next++))
}

const letters = byteLetters()
const texts = globSync('{docs,examples}/**/*.{md,ts}', { cwd: root }).toSorted()
const counts = new Map<string, number>()
for (const file of texts) {
  for (const [found] of readFileSync(join(root, file), 'utf8').matchAll(word)) {
    // No token of several line ends: the simulator's texts begin and end beside them.
    const written = found === '\n' || !found.includes('\n') ? found : '\n'
    counts.set(written, (counts.get(written) ?? 0) + 1)
  }
}
const words = Array.from(counts, ([text, count]) => ({
  count,
  parts: Array.from(Buffer.from(text), (byte) => letters[byte] as string),
}))

const learned: [string, string][] = []
while (learned.length < merges) {
  const pairs = new Map<string, number>()
  for (const { parts, count } of words) {
    for (let at = 1; at < parts.length; at += 1) {
      const pair = `${parts[at - 1]} ${parts[at]}`
      pairs.set(pair, (pairs.get(pair) ?? 0) + count)
    }
  }
  const [best] = Array.from(pairs).toSorted(([one, few], [other, many]) => many - few || (one < other ? -1 : 1))
  const [left = '', right = ''] = best?.[0].split(' ') ?? []
  learned.push([left, right])
  for (const { parts } of words) {
    for (let at = 1; at < parts.length; at += 1) {
      if (parts[at - 1] === left && parts[at] === right) parts.splice(at - 1, 2, left + right)
    }
  }
}

const entries = [...letters, ...learned.map((pair) => pair.join(''))]
const tokenizer = {
  version: '1.0',
  truncation: null,
  padding: null,
  added_tokens: added.map((content, index) => ({
    id: entries.length + index,
    content,
    single_word: false,
    lstrip: false,
    rstrip: false,
    normalized: false,
    special: index < specialCount,
  })),
  normalizer: null,
  pre_tokenizer: { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true },
  post_processor: null,
  decoder: { type: 'ByteLevel', add_prefix_space: true, trim_offsets: true, use_regex: true },
  model: {
    type: 'BPE',
    dropout: null,
    unk_token: null,
    continuing_subword_prefix: null,
    end_of_word_suffix: null,
    fuse_unk: false,
    byte_fallback: false,
    vocab: Object.fromEntries(entries.map((entry, id) => [entry, id])),
    merges: learned,
  },
}
writeFileSync(join(root, 'assets', 'simulator', 'tokenizer.json'), `${JSON.stringify(tokenizer)}\n`)
