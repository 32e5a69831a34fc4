import { describe, expect, test } from 'vitest'
import { dialectOptions } from '../../../test/support/inference/dialect-options.ts'
import { plainRequest } from '../../../test/support/inference/plain-request.ts'
import type { ModelRequest } from '../backend.ts'
import { TokenPrompt } from '../tokens/token-prompt.ts'
import {
  completionsEndpoint,
  idsInCompletion,
  sglangGenerateEndpoint,
  type TokenEndpoint,
  vllmGenerateEndpoint,
} from './token-endpoints.ts'

const { source } = dialectOptions('completions')
const prompt = TokenPrompt.of(Int32Array.of(5, 6), Int32Array.of(7))

function bodyOf(endpoint: TokenEndpoint, request: Partial<ModelRequest> = {}): unknown {
  return JSON.parse(endpoint.render({ ...plainRequest, ...request }, { prompt, model: 'm' }).toString())
}

const read = (endpoint: TokenEndpoint, document: unknown) =>
  endpoint.reader(source).parse(document, { messages: [], headers: {} })

const schema = { type: 'object' }
const request: Partial<ModelRequest> = {
  sampling: {
    temperature: 0.5,
    topP: 0.9,
    maxTokens: 20,
    stop: ['x'],
    seed: 3,
    extra: { top_k: 4, user: 'somebody', chat_template_kwargs: { thinking: true } },
  },
  responseFormat: { kind: 'json_schema', name: 'n', schema },
}

describe('a body', () => {
  test('of vLLM for completions asks for ids and log-probabilities of all tokens', () => {
    expect(bodyOf(completionsEndpoint('names'), request)).toEqual({
      prompt: [5, 6, 7],
      model: 'm',
      temperature: 0.5,
      top_p: 0.9,
      max_tokens: 20,
      stop: ['x'],
      seed: 3,
      response_format: { type: 'json_schema', json_schema: { name: 'n', schema } },
      top_k: 4,
      logprobs: 0,
      skip_special_tokens: false,
      return_tokens_as_token_ids: true,
    })
    expect(bodyOf(completionsEndpoint('field'))).toMatchObject({ return_token_ids: true })
  })

  test("of vLLM's own API asks for the text only if a stop sequence is looked for in it", () => {
    expect(bodyOf(vllmGenerateEndpoint, request)).toEqual({
      token_ids: [5, 6, 7],
      model: 'm',
      sampling_params: {
        temperature: 0.5,
        top_p: 0.9,
        max_tokens: 20,
        stop: ['x'],
        seed: 3,
        structured_outputs: { json: schema },
        top_k: 4,
        logprobs: 0,
        detokenize: true,
      },
    })
    expect(bodyOf(vllmGenerateEndpoint)).toMatchObject({ sampling_params: { detokenize: false } })
  })

  test('of SGLang has no name of a model', () => {
    expect(bodyOf(sglangGenerateEndpoint, request)).toEqual({
      input_ids: [5, 6, 7],
      sampling_params: {
        temperature: 0.5,
        top_p: 0.9,
        max_new_tokens: 20,
        stop: ['x'],
        sampling_seed: 3,
        json_schema: JSON.stringify(schema),
        top_k: 4,
        skip_special_tokens: false,
      },
      return_logprob: true,
    })
  })

  test('of SGLang has only sampling parameters among those: it fails with any other one', () => {
    const extra = { min_tokens: 2, regex: 'a+', return_hidden_states: true, guided_regex: 'b' }
    expect(bodyOf(sglangGenerateEndpoint, { sampling: { extra } })).toEqual({
      input_ids: [5, 6, 7],
      return_hidden_states: true,
      guided_regex: 'b',
      sampling_params: { min_new_tokens: 2, regex: 'a+', skip_special_tokens: false },
      return_logprob: true,
    })
  })

  test.each([
    ['logprobs', completionsEndpoint('names')],
    ['stream', completionsEndpoint('names')],
    ['detokenize', vllmGenerateEndpoint],
    ['max_new_tokens', sglangGenerateEndpoint],
    ['input_ids', sglangGenerateEndpoint],
  ])('does not let sampling.extra.%s replace what is needed', (field, endpoint) => {
    expect(() => bodyOf(endpoint, { sampling: { extra: { [field]: 1 } } })).toThrow(field)
  })
})

const logprobs = { tokens: ['token_id:9', 'token_id:10'], token_logprobs: [-0.5, null] }

describe('a reply', () => {
  test.each([
    ['their names', { logprobs }],
    ['a field', { logprobs: { ...logprobs, tokens: ['a', 'b'] }, token_ids: [9, 10], prompt_token_ids: [5, 6, 7] }],
  ])('of completions has its ids as %s', (_, fields) => {
    const document = {
      choices: [{ text: 'ab', finish_reason: 'stop', stop_reason: 'x', ...fields }],
      usage: { prompt_tokens: 3, completion_tokens: 1, prompt_tokens_details: { cached_tokens: 2 } },
      metadata: { weight_version: '7' },
    }
    const reply = read(completionsEndpoint('names'), document)
    expect(reply).toMatchObject({
      finishReason: 'stop',
      stopSequence: 'x',
      // Some servers do not count the token that ends the reply.
      usage: { calls: 1, input: 3, cachedInput: 2, output: 2 },
      tokens: { ids: Int32Array.of(9, 10), logprobs: Float32Array.of(-0.5, Number.NaN), version: '7' },
    })
    expect(reply.tokens?.promptIds).toEqual('token_ids' in fields ? Int32Array.of(5, 6, 7) : undefined)
  })

  test("of vLLM's own API has the version of each of its tokens", () => {
    const content = [{ logprob: -1 }, { logprob: -2 }, { logprob: -9999 }]
    const versions = [
      { version: '1', start: 0, end: 1 },
      { version: '2', start: 1, end: 3 },
    ]
    const choice = { token_ids: [9, 10, 11], logprobs: { content }, finish_reason: 'length', weight_versions: versions }
    expect(read(vllmGenerateEndpoint, { choices: [choice] })).toMatchObject({
      finishReason: 'length',
      usage: { input: 0, output: 3 },
      tokens: {
        ids: Int32Array.of(9, 10, 11),
        logprobs: Float32Array.of(-1, -2, Number.NaN),
        version: '1',
        versionSpans: [
          { from: 0, version: '1' },
          { from: 1, version: '2' },
        ],
      },
    })
  })

  test.each([
    ['is no object', [], /not a JSON object/],
    ['has no choices', {}, /no choices/],
    ['has no log-probabilities', { choices: [{ token_ids: [1], finish_reason: 'stop' }] }, /no log-probabilities/],
    [
      'has no ids',
      { choices: [{ logprobs: { tokens: [], token_logprobs: [] }, finish_reason: 'stop' }] },
      /no token ids/,
    ],
    [
      'has a token without an id',
      { choices: [{ logprobs: { tokens: ['a'], token_logprobs: [0] }, finish_reason: 'stop' }] },
      /token id 0/,
    ],
    ['has not ended', { choices: [{ logprobs }] }, /no finish reason/],
    ['was aborted', { choices: [{ logprobs, finish_reason: 'abort' }] }, /ended it with "abort"/],
    ['is an error', { error: { message: 'out of memory', code: 500 } }, /out of memory/],
  ])('that %s is refused', (_, document, error) => {
    expect(() => read(completionsEndpoint('names'), document)).toThrow(error)
  })
})

test('where a server writes ids is seen in its reply to a probe', () => {
  expect(idsInCompletion({ choices: [{ logprobs }] })).toBe('names')
  expect(idsInCompletion({ choices: [{ logprobs: { tokens: ['a'] }, token_ids: [1] }] })).toBe('field')
  expect(idsInCompletion({ choices: [{ text: 'a', logprobs: null }] })).toBeUndefined()
  expect(idsInCompletion('<html>')).toBeUndefined()
})
