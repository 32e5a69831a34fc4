import { expect, test } from 'vitest'
import { tokenRequestOf } from './client-side.ts'

test('each engine has words of its own, and one that is not known is asked as vLLM', () => {
  expect(tokenRequestOf(['vllm', 'vllm'])).toMatchObject({ fields: { return_token_ids: true }, inStreams: true })
  expect(tokenRequestOf([undefined])).toBe(tokenRequestOf(['vllm']))
  expect(tokenRequestOf([])).toBe(tokenRequestOf(['vllm']))
  const { fields, inStreams } = tokenRequestOf(['sglang'])
  expect(fields).not.toHaveProperty('return_token_ids')
  expect(inStreams).toBe(false)
})

test('backends of several engines are asked in the words of all, and only for what all can do', () => {
  const mixed = tokenRequestOf(['sglang', undefined])
  expect(mixed.fields).toMatchObject({ logprobs: true, return_token_ids: true, return_meta_info: true })
  expect(mixed.inStreams).toBe(false)
})
