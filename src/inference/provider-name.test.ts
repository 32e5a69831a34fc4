import { expect, test } from 'vitest'
import { providerAt } from './provider-name.ts'

test('a backend is named after its engine, after its host, or after whoever made its API', () => {
  expect(providerAt('gpu-1', 'chat', 'vllm')).toBe('vllm')
  expect(providerAt('gpu-1', 'responses')).toBe('openai')
  expect(providerAt('api.anthropic.com', 'messages')).toBe('anthropic')
  expect(providerAt('ours.openai.azure.com', 'chat')).toBe('azure.ai.openai')
})
