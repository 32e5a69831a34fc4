import { expect, test } from 'vitest'
import { countPieces, eachPiece, pieceId, TokenCounter, TokenList, writePrompt, writeReply } from './tokens.ts'
import { groupTokens } from './paced-reply.ts'
import type { AssistantMessage, Message } from '../../schema/index.ts'

const texts = [
  '',
  ' ',
  'a',
  'What is 12345 + 7?',
  '  two  spaces\n\tand more ',
  'naïve 😀 日本語',
  '\ud83d',
  'internationalisation',
]

test.each(texts)('the tokens of %j join to the text and match the token count', (text) => {
  const pieces: string[] = []
  eachPiece(text, (piece) => pieces.push(piece))
  expect(pieces.join('')).toBe(text)
  expect(countPieces(text)).toBe(pieces.length)
  expect(pieces).not.toContain('')
})

test('equal tokens have equal ids within the vocabulary', () => {
  expect(pieceId(' the')).toBe(pieceId(' the'))
  expect(pieceId(' the')).not.toBe(pieceId('the'))
  expect(pieceId('zebra')).toBeLessThan(128_000)
})

const call: AssistantMessage = {
  role: 'assistant',
  content: 'Let me see.',
  reasoning_content: 'First, think.',
  tool_calls: [
    { id: 'a', type: 'function', function: { name: 'search_everything', arguments: '{"query":"mills and races"}' } },
    { id: 'b', type: 'function', function: { name: 'search_everything', arguments: '{}' } },
  ],
}
const conversation: Message[] = [
  { role: 'system', content: 'Be brief.' },
  {
    role: 'user',
    content: [
      { type: 'text', text: 'What is this?' },
      { type: 'image_url', image_url: { url: 'data:image/png;base64,AAAA' } },
    ],
  },
]

test('counting and listing give the same number', () => {
  const counter = new TokenCounter()
  const list = new TokenList()
  for (const sink of [counter, list]) writePrompt(sink, [...conversation, call], '[{"name":"search"}]')
  expect(list.tokens.length).toBe(counter.count)
})

test('the next prompt starts with this prompt and its reply', () => {
  const sofar = new TokenList()
  writePrompt(sofar, conversation, '')
  writeReply(sofar, call)
  sofar.marker('<|end|>')
  const next = new TokenList()
  writePrompt(next, [...conversation, call, { role: 'tool', tool_call_id: 'a', content: 'nothing' }], '')
  expect(next.tokens.slice(0, sofar.tokens.length).map(({ id }) => id)).toEqual(sofar.tokens.map(({ id }) => id))
})

test.each([1, 3, 8])('groups of at most %i tokens cover a reply without a gap', (size) => {
  const list = new TokenList()
  writeReply(list, call)
  list.marker('<|end|>')
  const groups = groupTokens(list.tokens, size)
  expect(groups.map(({ from }) => from)).toEqual([0, ...groups.slice(0, -1).map(({ to }) => to)])
  expect(groups.at(-1)).toMatchObject({ part: 'marker', to: list.tokens.length })
  const textOf = (part: string, index: number) =>
    groups
      .filter((group) => group.part === part && group.call === index)
      .map(({ text }) => text)
      .join('')
  expect(textOf('content', -1)).toBe(call.content)
  expect(textOf('reasoning', -1)).toBe(call.reasoning_content)
  expect(textOf('arguments', 0)).toBe('{"query":"mills and races"}')
  expect(groups.filter((group) => group.part === 'name').map(({ text }) => text)).toEqual([
    'search_everything',
    'search_everything',
  ])
})
