import { describe, expect, test } from 'vitest'
import { Redaction } from '../../kit/index.ts'
import { codeOf } from '../../../test/support/inference/code-of.ts'
import type { BackendReply } from '../backend.ts'
import { EventDraft } from '../client-side.ts'
import { GenerateReader } from './read-reply.ts'

const source = { backend: 'b', url: 'http://b/generate', model: 'm', apiKeyEnv: 'KEY', redaction: new Redaction([]) }
const reader = new GenerateReader(source)

/** An event, or a whole reply, with the tokens `from` to `to` of those so far. */
function said(text: string, { from = 0, to, version = 'v1', finish }: SaidOptions): object {
  const ids = [11, 12, 13, 14].slice(from, to)
  return {
    text,
    output_ids: ids,
    prompt_token_ids: [1, 2],
    meta_info: {
      id: 'r',
      finish_reason: finish === undefined ? null : { type: finish },
      prompt_tokens: 2,
      cached_tokens: 1,
      completion_tokens: to,
      weight_version: version,
      output_token_logprobs: ids.map((id) => [-id / 64, id, null]),
      output_token_logprobs_length: to,
    },
  }
}

interface SaidOptions {
  readonly from?: number
  readonly to: number
  readonly version?: string
  readonly finish?: string
}

function streamed(events: readonly object[]): BackendReply {
  const assembler = reader.assemble({})
  for (const event of events) assembler.onEvent(JSON.stringify(event))
  assembler.onEvent('[DONE]')
  return assembler.reply()
}

const whole = reader.parse(said('a b c d', { to: 4, finish: 'stop' }), {})

test('a whole reply holds its text, its tokens and its usage', () => {
  expect(whole).toEqual({
    message: { role: 'assistant', content: 'a b c d' },
    finishReason: 'stop',
    usage: { calls: 1, input: 2, cachedInput: 1, output: 4, reasoning: 0 },
    tokens: {
      promptIds: Int32Array.of(1, 2),
      ids: Int32Array.of(11, 12, 13, 14),
      logprobs: Float32Array.of(-11 / 64, -12 / 64, -13 / 64, -14 / 64),
      version: 'v1',
    },
  })
})

test.each([
  ['x', 'x'],
  [13, undefined],
])('of what has ended a reply, %j, only a text is a stop sequence', (matched, expected) => {
  const { meta_info: meta, ...document } = said('a', { to: 1 }) as { meta_info: object }
  const ended = { ...document, meta_info: { ...meta, finish_reason: { type: 'stop', matched } } }
  expect(reader.parse(ended, {}).stopSequence).toBe(expected)
})

describe('a stream gives the same reply', () => {
  test('if each event repeats the earlier text', () => {
    const events = [said('a', { to: 1 }), said('a b c', { to: 3 }), said('a b c', { to: 3 })]
    expect(streamed([...events, said('a b c d', { to: 4, finish: 'stop' })])).toEqual(whole)
  })

  test('if each event holds only the new text', () => {
    const events = [said('a', { to: 1 }), said(' b c', { from: 1, to: 3 }), said('', { from: 3, to: 3 })]
    expect(streamed([...events, said(' d', { from: 3, to: 4, finish: 'stop' })])).toEqual(whole)
  })

  test('if the tokens have no log-probabilities', () => {
    const bare = (to: number, finish?: string) => ({
      text: 'x'.repeat(to),
      output_ids: [11, 12, 13].slice(0, to),
      meta_info: { completion_tokens: to, finish_reason: finish && { type: finish } },
    })
    const { tokens, message } = streamed([bare(1), bare(2), bare(3, 'length')])
    expect(message.content).toBe('xxx')
    expect(tokens?.ids).toEqual(Int32Array.of(11, 12, 13))
  })
})

test('without tokens, the text shows whether events repeat it', () => {
  const bare = (text: string, finish?: string) => ({ text, meta_info: { finish_reason: finish && { type: finish } } })
  expect(streamed([bare('a'), bare('a b'), bare('a b c', 'stop')]).message.content).toBe('a b c')
  expect(streamed([bare('a'), bare(' b'), bare(' c', 'stop')]).message.content).toBe('a b c')
})

test('a version that changes during a stream counts for its own tokens', () => {
  const events = [said('a', { to: 1 }), said('a b c', { to: 3, version: 'v2' })]
  const { tokens } = streamed([...events, said('a b c d', { to: 4, version: 'v2', finish: 'stop' })])
  expect(tokens?.versionSpans).toEqual([
    { from: 0, version: 'v1' },
    { from: 1, version: 'v2' },
  ])
})

test('a stream that broke off gives the partial reply', () => {
  const assembler = reader.assemble({})
  const data = JSON.stringify(said('a b', { to: 2 }))
  const event = new EventDraft(data)
  assembler.onEvent(data, event)
  expect(event.document).toMatchObject({ text: 'a b' })
  expect(assembler).toMatchObject({ hasOutput: true, isComplete: false })
  expect(assembler.partial()).toMatchObject({ message: { content: 'a b' }, tokens: { ids: Int32Array.of(11, 12) } })
})

test.each<[string, () => unknown]>([
  ['model_malformed', () => reader.parse([said('a', { to: 1, finish: 'stop' })], {})],
  ['model_malformed', () => reader.parse({ text: 'a' }, {})],
  ['model_malformed', () => streamed([said('a b c', { to: 3 }), said('d', { from: 1, to: 2 })])],
  ['model_truncated', () => streamed([said('a', { to: 1 })])],
  ['model_truncated', () => reader.parse(said('a', { to: 1, finish: 'abort' }), {})],
  ['model_rejected', () => streamed([{ error: { message: 'no', code: 400 } }])],
])('%s is the code of any other reply', async (code, read) => {
  expect(await codeOf(async () => read())).toBe(code)
})
