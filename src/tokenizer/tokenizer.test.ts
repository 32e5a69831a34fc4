import { cp, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { simulatorFolder } from '../../test/support/tokens/simulator-folder.ts'
import { temporaryFolder } from '../../test/support/tools/temporary-folder.ts'
import { sameNumbers, seededRandom } from '../kit/index.ts'
import { loadTokenizer } from './load-tokenizer.ts'

const { tokenizer } = await loadTokenizer(simulatorFolder)

const joined = (parts: readonly Int32Array[]) => Int32Array.from(parts.flatMap((part) => Array.from(part)))

/** Texts of what tokenizers trip over. */
function hostileText(random: () => number): string {
  const pieces = [
    'the',
    ' of',
    '  ',
    '\n',
    '\t',
    '<|im_end|>',
    '<|im_',
    '<think>',
    '{"a": [1.5e-3]}',
    'é',
    '日本',
    '🙂🏽',
    '\u00a0',
    "don't",
    '123456',
    '\u{feff}',
  ]
  return Array.from({ length: Math.floor(random() * 20) }, () => pieces[Math.floor(random() * pieces.length)]).join('')
}

test('a text is decoded as it was encoded, and has the same ids in parts as in one piece', () => {
  const random = seededRandom(1)
  for (let index = 0; index < 500; index += 1) {
    const text = hostileText(random)
    const ids = tokenizer.encode(text)
    expect(tokenizer.decode(ids)).toBe(text)
    expect(sameNumbers(joined(tokenizer.encodeParts(text)), ids)).toBe(true)
  }
})

test('special tokens divide a text, others do not', () => {
  expect(tokenizer.partsOf('a<|im_end|>\n<think>b')).toEqual(['a', '<|im_end|>', '\n<think>b'])
  expect(tokenizer.partsOf('')).toEqual([])
  expect([tokenizer.isSpecial(tokenizer.idOf('<|im_end|>') ?? -1), tokenizer.isSpecial(5)]).toEqual([true, false])
})

test('bytes that are no UTF-8 are decoded as replacement characters', () => {
  expect(tokenizer.decode([0xe2, 0x41])).toBe('\ufffdA')
  expect(tokenizer.decode(Int32Array.of(0xc3, 0xa9))).toBe('é')
})

test('the ids of a part are remembered until the room for them is used up', () => {
  const text = 'a long word '.repeat(5000)
  const ids = tokenizer.encodePart(text)
  expect(tokenizer.known(text)).toBe(ids)
  for (let index = 0; index < 50; index += 1) tokenizer.keep(`${index}${text}`, ids)
  expect(tokenizer.known(text)).toBeUndefined()
  // A text that is longer than what one may take is not kept.
  tokenizer.keep('x'.repeat(100_000), ids)
  expect(tokenizer.known('x'.repeat(100_000))).toBeUndefined()
})

test('the tokens that end a reply are those of both configs', async () => {
  await using folder = await temporaryFolder()
  await cp(simulatorFolder, folder.path, { recursive: true })
  expect((await loadTokenizer(folder.path)).endIds).toEqual([tokenizer.idOf('<|im_end|>')])
  await writeFile(join(folder.path, 'generation_config.json'), '{"eos_token_id": [7, 8]}')
  expect((await loadTokenizer(folder.path)).endIds).toEqual([tokenizer.idOf('<|im_end|>'), 7, 8])
})

test('a template in the config is read, the one for tools first', async () => {
  await using folder = await temporaryFolder()
  await cp(join(simulatorFolder, 'tokenizer.json'), join(folder.path, 'tokenizer.json'))
  await expect(loadTokenizer(folder.path)).rejects.toThrow('has no chat_template.jinja')
  const templates = [
    { name: 'default', template: 'usual' },
    { name: 'tool_use', template: '{{ bos_token }} with tools' },
  ]
  const config = { chat_template: templates, bos_token: { content: '<s>' } }
  await writeFile(join(folder.path, 'tokenizer_config.json'), JSON.stringify(config))
  const { template } = await loadTokenizer(folder.path)
  expect(template.render({ messages: [], tools: [], addGenerationPrompt: true })).toBe('<s> with tools')
  await writeFile(join(folder.path, 'tokenizer_config.json'), '[]')
  await expect(loadTokenizer(folder.path)).rejects.toThrow('tokenizer_config.json is not a JSON object')
})

test('a folder without a tokenizer says what to name', async () => {
  await using folder = await temporaryFolder()
  await expect(loadTokenizer(folder.path)).rejects.toThrow(/no tokenizer\.json\. Name the folder of a model/)
})

test('the tokenizer of the simulator has the bytes first, and then its merges', async () => {
  const { model, added_tokens: added } = JSON.parse(
    await readFile(join(simulatorFolder, 'tokenizer.json'), 'utf8'),
  ) as { model: { vocab: Record<string, number>; merges: [string, string][] }; added_tokens: { id: number }[] }
  const entries = Object.entries(model.vocab)
  // Its first ids are the bytes, and each merge has an entry: the simulator counts on both.
  expect(entries.map(([, id]) => id).toSorted((one, other) => one - other)).toEqual(entries.map((_, index) => index))
  expect(model.merges.every(([left, right], index) => model.vocab[left + right] === 256 + index)).toBe(true)
  expect(added[0]?.id).toBe(entries.length)
  expect(tokenizer.decode([65, 0x7a])).toBe('Az')
})
