import { expect, test } from 'vitest'
import { tokenRequestOf } from './client-side.ts'

test('each engine has its own token fields, and an unknown engine gets those of vLLM', () => {
  expect(tokenRequestOf(['vllm', 'vllm'])).toMatchObject({ fields: { return_token_ids: true }, inStreams: true })
  expect(tokenRequestOf([undefined])).toBe(tokenRequestOf(['vllm']))
  expect(tokenRequestOf([])).toBe(tokenRequestOf(['vllm']))
  const { fields, inStreams } = tokenRequestOf(['sglang'])
  expect(fields).not.toHaveProperty('return_token_ids')
  expect(inStreams).toBe(false)
})

test('a mix of engines gets the fields of all, and streams only if all support them', () => {
  const mixed = tokenRequestOf(['sglang', undefined])
  expect(mixed.fields).toMatchObject({ logprobs: true, return_token_ids: true, return_meta_info: true })
  expect(mixed.inStreams).toBe(false)
})
