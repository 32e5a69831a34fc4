import { expect, test } from 'vitest'
import type { ModelRequest } from '../apis/backend.ts'
import type { Json, SamplingRecord, ToolDefinition } from '../schema/index.ts'
import { costOf } from './model/model.ts'
import { samplingRecord } from './session.ts'
import { estimatedTokens, priceOf } from './usage.ts'

test('an image counts as one, however long its URL is', () => {
  const text = { type: 'text', text: 'x'.repeat(400) } as const
  const image = (bytes: number) =>
    ({ type: 'image_url', image_url: { url: `data:image/png;base64,${'A'.repeat(bytes)}` } }) as const
  const tokens = (bytes: number): number => estimatedTokens([{ role: 'user', content: [text, image(bytes)] }])
  expect(tokens(1_000_000)).toBe(tokens(10))
  expect(tokens(10)).toBeGreaterThan(1_100)
  expect(tokens(10)).toBeLessThan(1_200)
})

test('the longest matching name gives the price, and a different model does not match', () => {
  expect(priceOf('gpt-4o')).toEqual(priceOf('gpt-4o-2024-08-06'))
  expect(priceOf('gpt-4o-mini')).not.toEqual(priceOf('gpt-4o'))
  expect(priceOf('openai/gpt-4o-mini')).toEqual(priceOf('gpt-4o-mini-2024-07-18'))
  expect(priceOf('claude-sonnet-4-20250514')).toEqual(priceOf('claude-sonnet-4'))
  expect(priceOf('claude-opus-5-5')).not.toEqual(priceOf('claude-opus-5'))
  expect(priceOf('gpt-5-pro')).toBeUndefined()
  expect(priceOf('claude-opus-4-99')).toBeUndefined()
  expect(priceOf('my-own-model')).toBeUndefined()
  expect(priceOf('sim')).toMatchObject({ input: 0, output: 0 })
})

test('cached tokens have their own price, or that of other input', () => {
  const usage = { calls: 1, input: 1_000_000, cachedInput: 400_000, output: 100_000, reasoning: 50_000 }
  expect(costOf(usage, { input: 2, cachedInput: 0.5, output: 8 })).toBeCloseTo(1.2 + 0.2 + 0.8)
  expect(costOf(usage, { input: 2, output: 8 })).toBeCloseTo(2.8)
  expect(costOf(usage, undefined)).toBeNull()
})

const tool = (strict?: boolean): ToolDefinition => ({
  type: 'function',
  function: { name: 'f', parameters: {}, ...(strict !== undefined && { strict }) },
})
const asked = (request: Partial<ModelRequest>): SamplingRecord =>
  samplingRecord({ sampling: {}, tools: [], ...request }, {})
const withExtra = (extra: Record<string, Json>): SamplingRecord => asked({ sampling: { extra } })

test('sampling numbers are recorded under one name; absent ones are left out', () => {
  expect(asked({})).toEqual({})
  expect(asked({ tools: [tool(), tool(false)] })).toEqual({})
  const extra = {
    top_k: 20,
    min_p: 0.1,
    presence_penalty: 1,
    frequency_penalty: -1,
    repetition_penalty: 1.1,
    user: 'u',
  }
  expect(asked({ sampling: { temperature: 0, topP: 0.9, seed: 7, maxTokens: 5, stop: ['x'], extra } })).toEqual({
    temperature: 0,
    topP: 0.9,
    seed: 7,
    topK: 20,
    minP: 0.1,
    presencePenalty: 1,
    frequencyPenalty: -1,
    repetitionPenalty: 1.1,
  })
  expect(withExtra({ repeat_penalty: 1.2, top_k: null, min_p: 'low' })).toEqual({ repetitionPenalty: 1.2 })
  // On the wire these win over the others.
  expect(asked({ sampling: { temperature: 1, extra: { temperature: 0.5 } } })).toEqual({ temperature: 0.5 })
})

test.for<[string, SamplingRecord, readonly string[] | undefined]>([
  ['nothing', asked({}), undefined],
  ['a free choice of tools', asked({ toolChoice: 'auto' }), undefined],
  ['no tools', asked({ toolChoice: 'none' }), undefined],
  ['a call of any tool', asked({ tools: [tool()], toolChoice: 'required' }), ['tool_choice']],
  ['a call of one tool', asked({ tools: [tool()], toolChoice: { name: 'f' } }), ['tool_choice']],
  ['a call of any of no tools, which is not sent', asked({ toolChoice: 'required' }), undefined],
  ['a schema', asked({ responseFormat: { kind: 'json_object' } }), ['response_format']],
  ['fields of engines', withExtra({ guided_regex: '[0-9]+', logit_bias: { 5: -100 } }), ['logit_bias', 'guided_regex']],
  ['a length', withExtra({ min_tokens: 5, ignore_eos: true }), ['min_tokens', 'ignore_eos']],
  [
    'empty fields',
    withExtra({ guided_regex: '', logit_bias: {}, bad_words: [], min_tokens: 0, grammar: null }),
    undefined,
  ],
  ['an API’s own words', withExtra({ response_format: { type: 'json_object' } }), ['response_format']],
  ['an API’s own word for text', withExtra({ response_format: { type: 'text' }, tool_choice: 'auto' }), undefined],
  ['a call, in an API’s own words', withExtra({ tool_choice: { type: 'function' } }), ['tool_choice']],
])('the record of a reply names %s as its constraint, or none', ([, record, constrainedBy]) => {
  expect(record.constrainedBy).toEqual(constrainedBy)
})

test('a tool choice is recorded if it was sent', () => {
  expect(asked({ toolChoice: 'auto' })).toEqual({})
  expect(asked({ tools: [tool()], toolChoice: 'auto' })).toEqual({ toolChoice: 'auto' })
  // A body that is passed on may have tools that are not read here.
  const passed = samplingRecord({ sampling: {}, tools: [], toolChoice: 'required' }, {}, { isPassed: true })
  expect(passed).toEqual({ toolChoice: 'required', constrainedBy: ['tool_choice'] })
})

test('strict tools are recorded, and constrain only if the server supports them', () => {
  expect(asked({ tools: [tool(), tool(true)] })).toEqual({ strictTools: true })
})

test('the kind of log-probabilities is recorded if there are any', () => {
  const request = { sampling: {}, tools: [] }
  const tokens = { ids: Int32Array.of(1), logprobs: Float32Array.of(-1) }
  expect(samplingRecord(request, { logprobs: 'raw', tokens })).toEqual({ logprobs: 'raw' })
  expect(samplingRecord(request, { logprobs: 'raw', tokens: { ...tokens, logprobs: new Float32Array() } })).toEqual({})
  expect(samplingRecord(request, { logprobs: 'raw' })).toEqual({})
  expect(samplingRecord(request, { tokens })).toEqual({})
})
