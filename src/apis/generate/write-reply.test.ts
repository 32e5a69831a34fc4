import { describe, expect, test } from 'vitest'
import { MillraceError } from '../../errors/index.ts'
import type { BackendReply } from '../backend.ts'
import type { JsonObject } from '../../schema/index.ts'
import { generateServer } from './write-reply.ts'

describe('a request', () => {
  test('is read as far as it can be recorded', () => {
    const body = { model: 'm', text: 'Hi', sampling_params: { max_new_tokens: 5 }, stream: true, return_logprob: true }
    expect(generateServer.read(body)).toMatchObject({
      model: 'm',
      messages: [{ role: 'user', content: 'Hi' }],
      sampling: { maxTokens: 5 },
      stream: true,
      wantsLogprobs: true,
      body,
    })
  })

  test('with input_ids has no text', () => {
    const { model, messages, promptIds } = generateServer.read({ input_ids: [3, 4], text: null })
    expect([model, messages, promptIds]).toEqual(['', [{ role: 'user', content: '' }], Int32Array.of(3, 4)])
  })

  test('keeps its images', () => {
    const { messages } = generateServer.read({ text: 'What is this?', image_data: ['https://a/b.png'] })
    const image = { type: 'other', api: 'generate', value: { image_data: ['https://a/b.png'] } }
    expect(messages).toEqual([{ role: 'user', content: [{ type: 'text', text: 'What is this?' }, image] }])
  })

  test.each<[JsonObject, string]>([
    [{ text: ['a'] }, 'text'],
    [{ text: 5 }, 'text'],
    [{ input_ids: [[1]] }, 'input_ids'],
    [{ input_ids: [-1] }, 'input_ids'],
    [{ input_ids: [2 ** 31] }, 'input_ids'],
    [{ input_ids: 'a' }, 'input_ids'],
    [{ text: 'a', sampling_params: [{}] }, 'sampling_params'],
    [{ text: 'a', sampling_params: { n: 2 } }, 'sampling_params.n'],
    [{ text: 'a', stream: 'yes' }, 'stream'],
  ])('%j is refused with the path of the field', (body, param) => {
    const read = () => generateServer.read(body)
    expect(read).toThrow(MillraceError)
    expect(read).toThrow(expect.objectContaining({ code: 'model_rejected', data: { status: 400, param } }))
  })
})

describe('a reply', () => {
  const reply: BackendReply = {
    message: { role: 'assistant', content: 'ok' },
    finishReason: 'length',
    usage: { calls: 1, input: 2, cachedInput: 1, output: 2, reasoning: 0 },
    tokens: {
      promptIds: Int32Array.of(1, 2),
      ids: Int32Array.of(7, 8),
      logprobs: Float32Array.of(-0.5, -0.25),
      version: 'v1',
      versionSpans: [
        { from: 0, version: 'v1' },
        { from: 1, version: 'v2' },
      ],
    },
  }
  const headOf = (body: JsonObject) => ({ id: 'r', model: '', createdAt: 0, request: generateServer.read(body) })
  const meta = {
    id: 'r',
    finish_reason: { type: 'length' },
    prompt_tokens: 2,
    completion_tokens: 2,
    cached_tokens: 1,
    weight_version: 'v2',
  }

  test('holds the requested fields', () => {
    const bare = { text: 'ok', output_ids: [7, 8], meta_info: meta }
    expect(generateServer.whole(headOf({ text: 'a' }), reply)).toEqual(bare)
    const asked = headOf({ text: 'a', return_logprob: true, return_prompt_token_ids: true })
    const pairs = [
      [-0.5, 7, null],
      [-0.25, 8, null],
    ]
    expect(generateServer.whole(asked, reply)).toEqual({
      ...bare,
      prompt_token_ids: [1, 2],
      meta_info: { ...meta, output_token_logprobs: pairs },
    })
  })

  test('is one event of a stream, because each event repeats the earlier ones', () => {
    const head = headOf({ text: 'a', stream: true })
    const writer = generateServer.stream(head)
    const delta = { kind: 'content', text: 'ok' } as const
    const events = [...writer.start(), ...writer.delta(delta), ...writer.end(reply)]
    expect(events).toEqual([{ data: generateServer.whole(head, reply) }, { data: '[DONE]' }])
  })
})

test('errors have the format of SGLang', () => {
  const error = new MillraceError('model_rate_limited', 'wait', { data: { said: 'too many', retryAfterMs: 1500 } })
  expect(generateServer.error(error)).toEqual({
    status: 429,
    headers: { 'retry-after': '2', 'retry-after-ms': '1500' },
    body: { error: { message: 'too many' } },
  })
  expect(generateServer.streamError(error)).toEqual({ data: { error: { message: 'too many' } } })
})
