import { expect, test } from 'vitest'
import { responsesServer } from '../apis/index.ts'
import type { CallRecord, Message, TokenRecord } from '../schema/index.ts'
import { EpisodeItems, episodeItems, itemPieces } from './episode-items.ts'

const call = (output: number): CallRecord => ({
  model: 'm',
  backend: 'b',
  finishReason: 'stop',
  usage: { calls: 1, input: 1, cachedInput: 0, output, reasoning: 0 },
  cost: null,
  tries: 1,
  ms: 1,
  waitMs: 0,
})

const tokens = (promptIds: number[], ids: number[], logprobs = ids.map(() => -0.125)): TokenRecord => ({
  promptIds: Int32Array.from(promptIds),
  ids: Int32Array.from(ids),
  logprobs: Float32Array.from(logprobs),
})

const calling: Message = {
  role: 'assistant',
  content: 'Let me see.',
  reasoning_content: 'Two calls.',
  tool_calls: [
    { id: 'c1', type: 'function', function: { name: 'add', arguments: '{"n": 9007199254740993}' } },
    { id: 'c2', type: 'function', function: { name: 'get', arguments: '{}' } },
  ],
}
const conversation: Message[] = [
  calling,
  { role: 'tool', tool_call_id: 'c1', content: 'ok' },
  { role: 'tool', tool_call_id: 'c2', content: '9007199254740993' },
  { role: 'assistant', content: 'Done.' },
]

function reply(message: Message, record: TokenRecord) {
  return { message, call: call(record.ids.length), tokens: record }
}

test('the calls of a turn come first and then their outputs, with arguments as the model wrote them', () => {
  const { items } = episodeItems(
    'r',
    conversation.map((message) => ({ message })),
  )
  expect(items.map(({ item }) => item['type'])).toEqual([
    'reasoning',
    'message',
    'function_call',
    'function_call',
    'function_call_output',
    'function_call_output',
    'message',
  ])
  expect(items[2]?.item['arguments']).toBe('{"n": 9007199254740993}')
  expect(items[5]?.item).toMatchObject({ call_id: 'c2', output: '9007199254740993' })
  expect(new Set(items.map(({ item }) => item['id'])).size).toBe(7)
})

test('items that are read back are the same messages, also replies without anything between them', () => {
  const messages: Message[] = [
    { role: 'user', content: 'Go.' },
    ...conversation,
    { role: 'assistant', content: 'Really.' },
    {
      role: 'user',
      content: [
        { type: 'text', text: 'See: ' },
        { type: 'image_url', image_url: { url: 'data:x', detail: 'low' } },
      ],
    },
    { role: 'assistant', content: 'A cat.' },
  ]
  const { items } = episodeItems(
    'r',
    messages.map((message) => ({ message })),
  )
  const input = JSON.parse(`[${items.map((item) => [...itemPieces(item)].join('')).join(',')}]`)
  expect(responsesServer.read({ model: 'm', input }).messages).toEqual(messages)
})

test('the tokens of a reply are on its last item only', () => {
  const { items, isContiguous } = episodeItems('r', [
    reply(calling, tokens([1, 2], [3, 4])),
    ...conversation.slice(1, 3).map((message) => ({ message })),
    reply({ role: 'assistant', content: 'Done.' }, tokens([1, 2, 3, 4, 5, 6], [7])),
  ])
  expect(isContiguous).toBe(true)
  expect(items.map((item) => item.tokens !== undefined)).toEqual([false, false, false, true, false, false, true])
  const written = items.map((item) => JSON.parse([...itemPieces(item)].join('')))
  expect(written[3]).toMatchObject({
    call_id: 'c2',
    prompt_token_ids: [1, 2],
    generation_token_ids: [3, 4],
    generation_log_probs: [-0.125, -0.125],
  })
  expect(written[6]).toMatchObject({ prompt_token_ids: [1, 2, 3, 4, 5, 6], generation_token_ids: [7] })
})

const said = (text: string): Message => ({ role: 'assistant', content: text })
const asked: Message = { role: 'user', content: 'And?' }

test('from a prompt that does not begin with the tokens before it, no item has tokens', () => {
  const episode = new EpisodeItems('r')
  const hasTokens = (...args: Parameters<typeof reply>) => episode.next(reply(...args)).some((item) => item.tokens)
  expect(hasTokens(said('one'), tokens([1, 2], [3]))).toBe(true)
  episode.next({ message: asked })
  expect(hasTokens(said('two'), tokens([1, 2, 9, 4], [5]))).toBe(false)
  expect(episode.isContiguous).toBe(false)
  expect(hasTokens(said('three'), tokens([1, 2, 9, 4, 5, 6], [7]))).toBe(false)
})

test.each([
  ['fewer ids than were sampled', { ...reply(said('two'), tokens([1, 2, 3, 4], [5])), call: call(2) }],
  ['no prompt', reply(said('two'), { ids: Int32Array.of(5), logprobs: Float32Array.of(-1) })],
  ['a log-probability that is no number', reply(said('two'), tokens([1, 2, 3, 4], [5], [Number.NEGATIVE_INFINITY]))],
])('a reply with %s has no tokens, and the ones after it do', (_why, incomplete) => {
  const { items, isContiguous } = episodeItems('r', [
    reply(said('one'), tokens([1, 2], [3])),
    { message: asked },
    incomplete,
    { message: asked },
    reply(said('three'), tokens([1, 2, 3, 4, 5, 6], [7])),
  ])
  expect(items.map((item) => item.tokens !== undefined)).toEqual([true, false, false, false, true])
  expect(isContiguous).toBe(true)
})
