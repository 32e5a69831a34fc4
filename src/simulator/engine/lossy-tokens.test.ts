import { describe, expect, test } from 'vitest'
import { plainRequest } from '../../../test/support/inference/plain-request.ts'
import { simulatorFolder } from '../../../test/support/tokens/simulator-folder.ts'
import { TokenPrompt } from '../../apis/index.ts'
import { sameNumbers } from '../../kit/index.ts'
import type { AssistantMessage, Message, ToolDefinition } from '../../schema/index.ts'
import { loadTokenizer } from '../../tokenizer/index.ts'
import { limitMessage } from './compose.ts'
import { lossyTokens } from './lossy-tokens.ts'
import { Simulator } from './simulator.ts'
import { SimulatorServer } from '../server/server.ts'

const { tokenizer } = await loadTokenizer(simulatorFolder)
const vocabulary = lossyTokens()

const tools: readonly ToolDefinition[] = [
  {
    type: 'function',
    function: {
      name: 'look_up',
      description: 'Looks up.',
      parameters: { type: 'object', properties: { word: { type: 'string' } } },
    },
  },
]
const call = (id: string, written: string) => ({
  id,
  type: 'function' as const,
  function: { name: 'look_up', arguments: written },
})
const calling: AssistantMessage = {
  role: 'assistant',
  content: 'I look: naïve 日本語 🙂 <|im_end|>.',
  reasoning_content: 'Two words, so two calls.',
  tool_calls: [call('call_0', '{"word":"a","é":[1.5,null]}'), call('call_1', '{"word":"b"}')],
}
const reply = `<think>
Two words, so two calls.
</think>

I look: naïve 日本語 🙂 <|im_end|>.
<tool_call>
{"name": "look_up", "arguments": {"word":"a","é":[1.5,null]}}
</tool_call>
<tool_call>
{"name": "look_up", "arguments": {"word":"b"}}
</tool_call><|im_end|>`

const sampled = (message: AssistantMessage, base: number) => {
  const tokens = vocabulary.sample(message, base)
  return { tokens, ids: Int32Array.from(tokens, ({ id }) => id) }
}

describe('a sampled reply', () => {
  test('says the message, whatever its tokens are', () => {
    for (let base = 0; base < 200; base += 1) {
      const { tokens, ids } = sampled(calling, base)
      expect(tokenizer.decode(ids)).toBe(reply)
      const said = (part: string, index = -1) =>
        tokens
          .filter((token) => token.part === part && token.call === index)
          .map(({ piece }) => piece)
          .join('')
      expect(said('content')).toBe(calling.content)
      expect(said('reasoning')).toBe(calling.reasoning_content)
      expect(said('arguments', 0)).toBe('{"word":"a","é":[1.5,null]}')
    }
  })

  test('has other tokens than its text in four of five replies', () => {
    const message: AssistantMessage = {
      role: 'assistant',
      content: 'It is the twelfth word of the list, and it means nothing. '.repeat(2),
    }
    const drifted = Array.from({ length: 1000 }, (_, base) => sampled(message, base).ids).filter(
      (ids) => !sameNumbers(ids, tokenizer.encode(tokenizer.decode(ids))),
    )
    expect(drifted.length / 1000).toBeGreaterThan(0.6)
    expect(drifted.length / 1000).toBeLessThan(0.95)
  })

  test('ends in the middle if it has a limit', () => {
    const { tokens } = sampled(calling, 1)
    const cut = limitMessage(calling, { maxTokens: 12, sampled: tokens })
    expect(cut).toMatchObject({ finishReason: 'length', outputTokens: 12, tokens: tokens.slice(0, 12) })
    expect(cut.message.tool_calls).toBeUndefined()
  })
})

test('a prompt of ids is read as the conversation that it was written from', () => {
  const { content, tool_calls: calls = [] } = calling
  const messages: readonly Message[] = [
    { role: 'system', content: 'Be\n\nkind.' },
    { role: 'user', content: 'Look up a and b.' },
    { role: 'assistant', content: (content ?? '').replace('<|im_end|>', ''), tool_calls: calls },
    { role: 'tool', tool_call_id: 'call_0', content: 'first' },
    { role: 'tool', tool_call_id: 'call_1', content: 'second\nline' },
    { role: 'assistant', content: 'Done.' },
    { role: 'user', content: 'Thanks' },
  ]
  const said = vocabulary.read?.(vocabulary.prompt({ messages, tools }))
  expect(said?.tools).toEqual(tools)
  // The template writes arguments with spaces.
  const withSpaces = (text: string) => text.replaceAll('":', '": ').replaceAll(',', ', ')
  expect(said?.messages).toEqual(
    messages.map((message) =>
      message.role === 'assistant' && message.tool_calls
        ? {
            ...message,
            tool_calls: calls.map(({ id, function: { arguments: written } }) => call(id, withSpaces(written))),
          }
        : message,
    ),
  )
  expect(vocabulary.read?.(vocabulary.prompt({ messages: messages.slice(0, 2), tools: [] }))).toEqual({
    messages: messages.slice(0, 2),
    tools: [],
  })
})

test('a prompt that ends with the beginning of a reply is answered with the rest of that reply', async () => {
  await using simulator = new Simulator({ tokens: 'lossy', imitate: 'millrace' })
  const promptIds = vocabulary.prompt({ messages: [{ role: 'user', content: 'What is 6 * 7?' }], tools: [] })
  const signal = new AbortController().signal
  const asked = { ...plainRequest, messages: [], captureTokens: true, retry: 0, signal }
  const idsFor = async (...begun: number[]): Promise<number[]> => {
    const prompt = TokenPrompt.of(promptIds, Int32Array.from(begun))
    const { tokens } = await simulator.send({ ...asked, prompt })
    return Array.from(tokens?.ids ?? [])
  }
  const whole = await idsFor()
  expect(await idsFor(...whole.slice(0, 2))).toEqual(whole.slice(2))
  expect(await idsFor(...whole)).toEqual(whole.slice(-1))
})

test('an in-process model of exact tokens gets its facts; one of words has none', async () => {
  await using lossy = new Simulator({ tokens: 'lossy' })
  expect(await lossy.tokenAccess?.facts()).toMatchObject({
    tokenizerFolder: simulatorFolder,
    contextLength: 1024 * 1024,
  })
  await using words = new Simulator()
  expect(words.tokenAccess).toBeUndefined()
})

const question = [{ role: 'user' as const, content: 'What is 6 * 7?' }]

describe('a server answers prompts of ids', () => {
  test.each([
    { imitate: 'vllm', path: '/v1/completions' },
    { imitate: 'millrace', path: '/v1/completions' },
    { imitate: 'vllm', path: '/inference/v1/generate' },
    { imitate: 'sglang', path: '/generate' },
  ] as const)('$imitate at $path', async ({ imitate, path }) => {
    await using server = await SimulatorServer.start({ tokens: 'lossy', imitate, weightVersion: '7', recordEmitted: 1 })
    const prompt = Array.from(vocabulary.prompt({ messages: question, tools: [] }))
    const bodies = {
      '/v1/completions': { model: 'sim', prompt, return_token_ids: true, logprobs: 0, max_tokens: 100 },
      '/inference/v1/generate': { model: 'sim', token_ids: prompt, sampling_params: { logprobs: 0, max_tokens: 100 } },
      '/generate': { input_ids: prompt, return_logprob: true },
    }
    const response = await fetch(new URL(path, server.url), { method: 'POST', body: JSON.stringify(bodies[path]) })
    const document = (await response.json()) as {
      choices?: { token_ids: number[]; prompt_token_ids?: number[]; weight_versions?: object[] }[]
      output_ids?: number[]
      metadata?: object
    }
    const [choice] = document.choices ?? []
    const ids = choice?.token_ids ?? document.output_ids ?? []
    expect(tokenizer.decode(ids)).toContain('42')
    expect(server.simulator.emitted().replies).toMatchObject([{ ids, promptIds: prompt }])
    if (path === '/v1/completions') {
      expect(choice?.prompt_token_ids).toEqual(prompt)
      // Only forks of vLLM say the version there.
      expect(document.metadata).toEqual(imitate === 'millrace' ? { weight_version: '7' } : undefined)
    }
    if (path === '/inference/v1/generate')
      expect(choice?.weight_versions).toEqual([{ version: '7', start: 0, end: ids.length }])
  })

  test.each([
    ['/v1/completions', { model: 'sim' }, 'prompt'],
    ['/v1/completions', { model: 'sim', prompt: [1], stream: true }, 'stream'],
    ['/inference/v1/generate', { model: 'sim', token_ids: [-1], sampling_params: {} }, 'token_ids.0'],
  ])('%s refuses %j', async (path, body, param) => {
    await using server = await SimulatorServer.start({ tokens: 'lossy' })
    const response = await fetch(new URL(path, server.url), { method: 'POST', body: JSON.stringify(body) })
    expect(response.status).toBe(400)
    expect(await response.json()).toMatchObject({ error: { param } })
  })

  test('its list of models names the folder, and /tokenize is the tokenizer', async () => {
    await using server = await SimulatorServer.start({ tokens: 'lossy' })
    const models = (await (await fetch(`${server.url}/models`)).json()) as { data: object[] }
    expect(models.data).toMatchObject([{ root: simulatorFolder, max_model_len: 1024 * 1024 }])
    const body = JSON.stringify({ model: 'sim', prompt: 'naïve <|im_end|>' })
    const answer = (await (await fetch(new URL('/tokenize', server.url), { method: 'POST', body })).json()) as object
    expect(answer).toMatchObject({ tokens: Array.from(tokenizer.encode('naïve <|im_end|>')) })
  })
})

test('over the text APIs, too, the reply is the one that was sampled', async () => {
  await using simulator = new Simulator({ tokens: 'lossy', reasoning: true })
  const request = { messages: question, tools: [], sampling: {}, captureTokens: true, sessionId: 's', retry: 0 }
  const { message, tokens } = await simulator.send({ ...request, signal: new AbortController().signal })
  expect(tokenizer.decode(tokens?.ids ?? [])).toBe(
    `<think>\n${message.reasoning_content}\n</think>\n\n${message.content}<|im_end|>`,
  )
})
