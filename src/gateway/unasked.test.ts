import { expect, test } from 'vitest'
import { withoutUnasked } from './_unasked.ts'

const choice = { index: 0, delta: { content: 'a' }, token_ids: [1], logprobs: { content: [] }, routed_experts: 'x' }
const chunk = { id: 'chatcmpl-1', choices: [choice], usage: null, prompt_token_ids: [1, 2], system_fingerprint: 'f' }

test('what only the record needs is taken out of what a client sees', () => {
  expect(withoutUnasked(chunk, { tokenIds: true, logprobs: true, usage: true })).toEqual({
    id: 'chatcmpl-1',
    choices: [{ index: 0, delta: { content: 'a' }, logprobs: null }],
    system_fingerprint: 'f',
  })
})

test('what the client asked for stays', () => {
  expect(withoutUnasked(chunk, { tokenIds: false, logprobs: false, usage: false })).toEqual(chunk)
})

test('a chunk that only says the usage is not for a client that did not ask', () => {
  const last = { id: 'chatcmpl-1', choices: [], usage: { prompt_tokens: 1 } }
  expect(withoutUnasked(last, { tokenIds: true, logprobs: true, usage: true })).toBeUndefined()
  expect(withoutUnasked(last, { tokenIds: true, logprobs: true, usage: false })).toEqual(last)
  // Not every chunk without choices is that one.
  expect(withoutUnasked({ id: 'x', choices: [] }, { tokenIds: true, logprobs: true, usage: true })).toEqual({
    id: 'x',
    choices: [],
  })
})
