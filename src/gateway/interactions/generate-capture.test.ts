import { expect, test } from 'vitest'
import { generateServer } from '../../dialects/index.ts'
import type { JsonObject } from '../../schema/index.ts'
import { GenerateView } from './_generate-capture.ts'

const reply = {
  text: 'a',
  output_ids: [1],
  prompt_token_ids: [5],
  meta_info: {
    id: 'r',
    output_token_logprobs: [[-1, 1, 'a']],
    output_token_logprobs_length: 1,
    input_token_logprobs: [],
    routed_experts: 'AAAA',
  },
}

const seenBy = (fields: JsonObject) => new GenerateView(generateServer.read({ text: 'x', ...fields })).of(reply)

test('what only the record needs is taken out of what a client sees', () => {
  expect(seenBy({})).toEqual({ text: 'a', output_ids: [1], meta_info: { id: 'r' } })
})

test('what the client asked for stays', () => {
  const all = { return_logprob: true, return_prompt_token_ids: true, return_routed_experts: true }
  // The reply itself, so that its client gets it as it was written.
  expect(seenBy(all)).toBe(reply)
  expect(seenBy({ return_routed_experts: true })).toEqual({
    text: 'a',
    output_ids: [1],
    meta_info: { id: 'r', routed_experts: 'AAAA' },
  })
})
