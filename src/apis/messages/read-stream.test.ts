import { describe, expect, test } from 'vitest'
import { Redaction } from '../../kit/index.ts'
import { codeOf } from '../../../test/support/inference/code-of.ts'
import { messagesEvents, messagesReply, type Block } from '../../../test/support/inference/messages-server.ts'
import type { ReplyDelta } from '../backend.ts'
import { EventDraft, type StreamAssembler } from '../client-side.ts'
import { ReplyDraft } from '../reply-draft.ts'
import { MessagesDialect } from './write-request.ts'

const source = { backend: 'b', url: 'http://b/v1/messages', model: 'm', apiKeyEnv: 'KEY', redaction: new Redaction([]) }
const options = { source, modelName: 'm', upstreamName: 'm', stream: true, sendReasoning: true, isOpenAi: false }
const dialect = new MessagesDialect(options)

const blocks: Block[] = [
  { type: 'thinking', thinking: 'first thought', signature: 's' },
  { type: 'redacted_thinking', data: 'x' },
  { type: 'thinking', thinking: 'second', signature: 's' },
  { type: 'text', text: 'I will lo' },
  { type: 'text', text: 'ok' },
  { type: 'server_tool_use', id: 's', name: 'web_search', input: { query: 'cats' } },
  { type: 'tool_use', id: 'c1', name: 'look', input: { where: 'here', n: 1 } },
  { type: 'tool_use', id: 'c2', name: 'stop', input: {} },
]

/** Reads events with a draft for each, as for a sink. */
function read(events: readonly object[], assembler = dialect.assemble({})): { deltas: ReplyDelta[] } & StreamAssembler {
  const deltas: ReplyDelta[] = []
  for (const event of events) {
    const data = JSON.stringify(event)
    const draft = new EventDraft(data)
    assembler.onEvent(data, draft)
    expect(draft.document).toEqual(event)
    deltas.push(...draft.deltas)
  }
  return Object.assign(assembler, { deltas })
}

test('a stream gives the same reply as a whole body, with and without a sink', () => {
  const whole = dialect.parse(messagesReply(blocks), {})
  expect(read(messagesEvents(blocks)).reply()).toEqual(whole)
  const unwatched = dialect.assemble({})
  for (const event of messagesEvents(blocks)) unwatched.onEvent(JSON.stringify(event))
  expect(unwatched.reply()).toEqual(whole)
})

test('the deltas of a stream add up to its reply', () => {
  const stream = read(messagesEvents(blocks))
  const draft = new ReplyDraft(source, {})
  for (const delta of stream.deltas) draft.add(delta)
  draft.finish = 'tool_use'
  const { others: _own, ...said } = stream.reply().message
  expect(draft.reply().message).toEqual(said)
  expect(stream.deltas.some((delta) => 'text' in delta && delta.text === '')).toBe(false)
})

test('a stream cut anywhere gives no reply, and its partial reply is a prefix of the whole one', async () => {
  const events = messagesEvents(blocks)
  const whole = dialect.parse(messagesReply(blocks), {}).message
  for (let count = 0; count <= events.length; count += 1) {
    const stream = read(events.slice(0, count))
    const { message } = stream.partial()
    expect(whole.content?.startsWith(message.content ?? '')).toBe(true)
    expect(whole.reasoning_content?.startsWith(message.reasoning_content ?? '')).toBe(true)
    for (const [index, call] of (message.tool_calls ?? []).entries()) {
      expect(whole.tool_calls?.[index]?.id).toBe(call.id)
      expect(whole.tool_calls?.[index]?.function.arguments.startsWith(call.function.arguments)).toBe(true)
    }
    // The last two events are the stop reason, which ends it, and message_stop, which only says so again.
    expect(stream.isComplete, `after ${count} events`).toBe(count >= events.length - 1)
    if (stream.isComplete) expect(stream.reply().message).toEqual(whole)
    else expect(await codeOf(() => stream.reply())).toBe('model_truncated')
  }
})

describe('the first output is received', () => {
  test.each([
    ['text', { type: 'text', text: 'x' }],
    ['thinking', { type: 'thinking', thinking: 'x', signature: 's' }],
    ['a tool call', { type: 'tool_use', id: 'c', name: 'n', input: {} }],
  ])('with %s', (_name, block: Block) => {
    const [start, ping, ...rest] = messagesEvents([block])
    const stream = read([start, ping] as object[])
    expect(stream.hasOutput).toBe(false)
    expect(read(rest, stream).hasOutput).toBe(true)
  })
})

describe('differences between servers', () => {
  const start = { type: 'message_start', message: { usage: { input_tokens: 4 } } }
  const reason = { type: 'message_delta', delta: { stop_reason: 'end_turn' } }
  const stop = { type: 'message_stop' }

  test('content in block starts, blocks without a stop, and [DONE] are accepted', () => {
    const stream = read([
      start,
      { type: 'content_block_start', index: 0, content_block: { type: 'text', text: 'hi' } },
      { type: 'content_block_start', index: 1, content_block: { type: 'tool_use', name: 'look', input: { x: 1 } } },
      reason,
      stop,
    ])
    stream.onEvent('[DONE]')
    expect(stream.reply()).toMatchObject({
      message: { content: 'hi', tool_calls: [{ id: 'call_0', function: { name: 'look', arguments: '{"x":1}' } }] },
      finishReason: 'tool_calls',
      usage: { input: 4, output: 0 },
    })
    expect(stream.deltas).toContainEqual({ kind: 'tool-call', index: 0, id: 'call_0', name: 'look' })
    expect(stream.deltas).toContainEqual({ kind: 'arguments', index: 0, text: '{"x":1}' })
  })

  test('numbers outside the range of a double stay exact, whole or in pieces', () => {
    const input = '{"id":9007199254740993,"far":1e400}'
    const block = `{"type":"tool_use","id":"c","name":"look","input":${input}}`
    const stream = dialect.assemble({})
    stream.onEvent(`{"type":"content_block_start","index":0,"content_block":${block}}`)
    stream.onEvent(JSON.stringify(reason))
    const body = `{"type":"message","content":[${block}],"stop_reason":"tool_use"}`
    const whole = dialect.parse(JSON.parse(body), {}, undefined, body)
    for (const { message } of [stream.reply(), whole]) {
      expect(message.tool_calls?.[0]?.function.arguments).toBe(input)
    }
  })

  test('interleaved blocks are read', () => {
    const piece = (index: number, partial: string): object => {
      return { type: 'content_block_delta', index, delta: { type: 'input_json_delta', partial_json: partial } }
    }
    const begin = (index: number): object => {
      return {
        type: 'content_block_start',
        index,
        content_block: { type: 'tool_use', id: `c${index}`, name: 'n', input: {} },
      }
    }
    const stream = read([
      begin(0),
      begin(1),
      piece(0, '{"a"'),
      piece(1, '{"b"'),
      piece(0, ':0}'),
      piece(1, ':1}'),
      reason,
      stop,
    ])
    expect(stream.reply().message.tool_calls?.map((call) => call.function.arguments)).toEqual(['{"a":0}', '{"b":1}'])
  })

  test('usage may come at the end only, or cumulatively', () => {
    const delta = (usage: object): object => ({ type: 'message_delta', delta: { stop_reason: 'end_turn' }, usage })
    const late = { input_tokens: 9, cache_read_input_tokens: 2, output_tokens: 5 }
    expect(read([{ type: 'message_start' }, delta(late), stop]).reply().usage).toMatchObject({ input: 11, output: 5 })
    expect(read([start, delta({ output_tokens: 5 }), stop]).reply().usage).toMatchObject({ input: 4, output: 5 })
    expect(read([start, delta({ input_tokens: 0, output_tokens: 5 })]).reply().usage.input).toBe(4)
  })

  test('unknown event and block types are accepted', () => {
    const stream = read([
      start,
      { type: 'news' },
      { type: 'content_block_start', index: 0, content_block: { type: 'new_block' } },
      { type: 'content_block_delta', index: 0, delta: { type: 'new_delta', said: 'so ' } },
      { type: 'content_block_delta', index: 0, delta: { type: 'new_delta', said: 'much' } },
      { type: 'content_block_stop', index: 0 },
      reason,
      stop,
    ])
    const value = { type: 'new_block', said: 'so much' }
    expect(stream.reply().message).toEqual({
      role: 'assistant',
      content: null,
      others: [{ type: 'other', api: 'messages', value }],
    })
  })
})

describe('malformed streams', () => {
  const tool = {
    type: 'content_block_start',
    index: 0,
    content_block: { type: 'tool_use', id: 'c', name: 'n', input: {} },
  }
  const delta = (value: unknown, index: unknown = 0): object => ({ type: 'content_block_delta', index, delta: value })
  const half = { type: 'input_json_delta', partial_json: '{"where": "he' }
  test.each([
    ['a block that is none', [{ type: 'content_block_start', index: 0 }], 'model_malformed'],
    ['a block without a place', [{ ...tool, index: undefined }], 'model_malformed'],
    ['a call without a name', [{ ...tool, content_block: { type: 'tool_use', id: 'c' } }], 'model_malformed'],
    ['a piece that is none', [tool, delta('x')], 'model_malformed'],
    ['a piece without a place', [tool, delta({ type: 'text_delta', text: 'x' }, null)], 'model_malformed'],
    ['a piece without its text', [delta({ type: 'text_delta' })], 'model_malformed'],
    ['arguments of no call', [delta({ type: 'input_json_delta', partial_json: '{' }, 3)], 'model_malformed'],
    ['an end without a place', [{ type: 'content_block_stop' }], 'model_malformed'],
    ['too many blocks at once', Array.from({ length: 1025 }, (_, index) => begun(index)), 'model_malformed'],
    [
      'too many calls',
      Array.from({ length: 1025 }, (_, index) => [{ ...tool, index }, ended(index)]).flat(),
      'model_malformed',
    ],
    ['an end without a reason', [begun(0), ended(0), { type: 'message_stop' }], 'model_truncated'],
    ['an end in the arguments of a call', [tool, delta(half), reasoned('tool_use')], 'model_truncated'],
    ['overload', [{ type: 'error', error: { type: 'overloaded_error', message: 'Overloaded' } }], 'model_overloaded'],
    ['a rate', [{ type: 'error', error: { type: 'rate_limit_error', message: 'x' } }], 'model_rate_limited'],
    ['anything', [{ type: 'error' }], 'model_server_error'],
  ])('%s', async (_name, events, code) => {
    expect(await codeOf(() => read(events))).toBe(code)
  })

  test('arguments cut off by max_tokens are a reply with finish reason length', () => {
    expect(read([tool, delta(half), reasoned('max_tokens')]).reply()).toMatchObject({
      message: { tool_calls: [{ function: { arguments: '{"where": "he' } }] },
      finishReason: 'length',
    })
  })

  test('data that is not a JSON object is malformed', async () => {
    for (const data of ['{"type":"mess', '"text"', '[]', 'null', '']) {
      expect(await codeOf(() => dialect.assemble({}).onEvent(data)), data).toBe('model_malformed')
    }
  })
})

function begun(index: number): object {
  return { type: 'content_block_start', index, content_block: { type: 'text', text: '' } }
}

function ended(index: number): object {
  return { type: 'content_block_stop', index }
}

function reasoned(reason: string): object {
  return { type: 'message_delta', delta: { stop_reason: reason } }
}
