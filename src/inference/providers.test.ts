import { expect, test } from 'vitest'
import { openBackend } from './_testing/open-backend.ts'

test('a backend is named after its engine, after its host, or after whoever made its API', async () => {
  for (const [url, config, provider] of [
    ['http://gpu-1:8000/v1', { engine: 'vllm' }, 'vllm'],
    ['http://gpu-1:8000/v1', { api: 'responses' }, 'openai'],
    ['http://gpu-1:8000/v1', { api: 'messages' }, 'anthropic'],
    ['https://api.anthropic.com/v1', {}, 'anthropic'],
    ['https://ours.openai.azure.com/v1', {}, 'azure.ai.openai'],
    ['https://api.mistral.ai/v1', {}, 'mistral_ai'],
  ] as const) {
    await using backend = openBackend(url, config)
    expect(backend.provider).toBe(provider)
  }
})
