import { describe, expect, test, vi } from 'vitest'
import { request as fetchText } from 'undici'
import { z } from 'zod'
import { openBackend, ask } from '../../../test/support/inference/open-backend.ts'
import { type BackendKind, probeBackend } from '../../inference/server-info/probe.ts'
import { modelConfigSchema } from '../../inference/index.ts'
import { countPaths } from '../../schema/index.ts'
import { apiPaths, body, eventsOf, get, post, postForJson } from '../../../test/support/simulator/ask.ts'
import { imitationNames, type ImitationName } from '../engine/options.ts'
import { SimulatorServer } from './server.ts'
import { Simulator } from '../engine/simulator.ts'

const question = 'What is 17 * 3? End with `Answer: <number>`.'
const apis = ['chat', 'responses', 'messages'] as const

const served: Readonly<Record<ImitationName, readonly string[]>> = {
  vllm: ['chat', 'responses', 'messages'],
  sglang: ['chat', 'responses', 'messages'],
  openai: ['chat', 'responses'],
  anthropic: ['messages'],
  millrace: ['chat', 'responses', 'messages'],
}

/** What a probe takes each for. */
const kinds = {
  vllm: 'vllm',
  sglang: 'sglang',
  openai: 'unknown',
  anthropic: 'anthropic',
  millrace: 'millrace-sim',
} satisfies Record<ImitationName, BackendKind>

describe.each(imitationNames)('%s', (imitate) => {
  test('serves its own APIs only, with the same content in all', async () => {
    await using server = await SimulatorServer.start({ imitate })
    await using simulator = new Simulator()
    const { message } = await simulator.send(ask({ messages: [{ role: 'user', content: question }] }))
    for (const api of apis) {
      const { status, text } = await post(server, apiPaths[api], body(api, question))
      expect([api, status]).toEqual([api, served[imitate].includes(api) ? 200 : 404])
      if (status === 200) expect(text).toContain(JSON.stringify(message.content))
    }
  })

  test('is recognised by a probe', async () => {
    await using server = await SimulatorServer.start({ imitate, contextLength: 4096, weightVersion: '1' })
    const { backends } = modelConfigSchema.parse({ name: 'sim', backends: [{ url: server.url }] })
    const api = imitate === 'anthropic' ? 'messages' : 'chat'
    const signal = new AbortController().signal
    const facts = await probeBackend(backends[0] as (typeof backends)[number], { env: {}, signal, api })
    const isEngine = imitate === 'vllm' || imitate === 'sglang' || imitate === 'millrace'
    expect(facts.apis).toEqual(served[imitate])
    expect(facts.models).toEqual([isEngine ? { id: 'sim', contextLength: 4096 } : { id: 'sim' }])
    expect(facts.kind).toBe(kinds[imitate])
    // Chat replies of vLLM do not say the version of the weights.
    const version = isEngine && imitate !== 'vllm'
    expect(facts.tokenFields).toMatchObject({ ids: isEngine, logprobs: imitate !== 'anthropic', version })
    expect(facts.tokenFields?.inStreams).toBe(imitate === 'vllm' || imitate === 'millrace')
  })
})

describe('token fields', () => {
  const asked = body('chat', question, { logprobs: true, return_token_ids: true })
  const options = { weightVersion: '3', routedExperts: '2x2' }

  test('of SGLang are in its own places, as requested', async () => {
    await using server = await SimulatorServer.start({ imitate: 'sglang', ...options })
    await using simulator = new Simulator(options)
    const { tokens } = await simulator.send(
      ask({ messages: [{ role: 'user', content: question }], captureTokens: true }),
    )
    const ids = [...(tokens?.ids ?? [])]
    const pairs = ids.map((id, index) => [tokens?.logprobs[index], id, expect.any(String)])
    const experts = Buffer.from(Int32Array.from(tokens?.routedExperts?.experts ?? []).buffer).toString('base64')
    const prompt_token_ids = [...(tokens?.promptIds ?? [])]
    const replyTo = (more: object) => postForJson(server, apiPaths.chat, body('chat', question, more))
    const own = { logprobs: true, return_meta_info: true, return_prompt_token_ids: true, return_routed_experts: true }
    const meta_info = { output_token_logprobs: pairs, weight_version: '3', routed_experts: experts }
    expect(await replyTo(own)).toMatchObject({
      metadata: { weight_version: '3' },
      choices: [{ prompt_token_ids, meta_info }],
    })
    expect(await replyTo({ return_token_ids: true })).toMatchObject({ choices: [{ prompt_token_ids, token_ids: ids }] })
    expect(await replyTo({ logprobs: true, return_routed_experts: true })).toMatchObject({
      sglext: { routed_experts: experts },
    })
  })

  test.each(['return_token_ids', 'return_prompt_token_ids', 'return_meta_info'])(
    'of SGLang are refused in a stream that asks for %s',
    async (flag) => {
      await using server = await SimulatorServer.start({ imitate: 'sglang' })
      const { status, text } = await post(server, apiPaths.chat, body('chat', question, { stream: true, [flag]: true }))
      expect([status, text]).toEqual([400, expect.stringContaining(`${flag} is not supported with streaming`)])
    },
  )

  test('of OpenAI are log-probabilities only', async () => {
    await using server = await SimulatorServer.start({ imitate: 'openai', ...options })
    const { text } = await post(server, apiPaths.chat, asked)
    expect(text).toContain('"logprob":')
    expect(text).not.toMatch(/token_ids|meta_info|weight_version|routed_experts/)
    await using simulator = new Simulator({ imitate: 'openai' })
    expect((await simulator.send(ask({ captureTokens: true }))).tokens).toBeUndefined()
  })

  test('are absent unless requested', async () => {
    for (const imitate of imitationNames) {
      await using server = await SimulatorServer.start({ imitate, ...options, recordEmitted: 10 })
      const api = imitate === 'anthropic' ? 'messages' : 'chat'
      const { text } = await post(server, apiPaths[api], body(api, question))
      expect(text).not.toMatch(/token_ids|output_token_logprobs|"logprob":|routed_experts/)
    }
  })

  test('over HTTP equal those in process', async () => {
    await using server = await SimulatorServer.start({ imitate: 'sglang', weightVersion: '3' })
    await using simulator = new Simulator({ imitate: 'sglang', weightVersion: '3' })
    await using client = openBackend(server.url, { engine: 'sglang', stream: true })
    const request = ask({ captureTokens: true, messages: [{ role: 'user', content: question }] })
    const { tokens } = await client.send(request)
    expect(tokens).toEqual((await simulator.send(request)).tokens)
  })
})

describe('the API of SGLang', () => {
  const asked = { text: question, sampling_params: { sampling_seed: 4 }, return_logprob: true }
  const schema = z.object({
    text: z.string(),
    output_ids: z.array(z.number()),
    meta_info: z.object({
      id: z.string(),
      finish_reason: z.object({ type: z.string() }).nullable(),
      prompt_tokens: z.number(),
      completion_tokens: z.number(),
      output_token_logprobs: z.array(z.tuple([z.number(), z.number(), z.string()])),
      weight_version: z.string(),
      weight_versions: z.array(z.object({ version: z.string(), start: z.number(), end: z.number() })),
    }),
  })

  test('generates text and tokens, streamed cumulatively', async () => {
    await using server = await SimulatorServer.start({ imitate: 'sglang', weightVersion: '9', tokensPerSecond: 2000 })
    const whole = schema.parse(await postForJson(server, '/generate', { ...asked, rid: 'r1' }))
    expect(whole.text).toBe('Answer: 51')
    const { output_token_logprobs: pairs, completion_tokens: count } = whole.meta_info
    expect(pairs.map(([, id]) => id)).toEqual(whole.output_ids)
    expect(whole.output_ids).toHaveLength(count)
    expect(whole.meta_info).toMatchObject({
      id: 'r1',
      finish_reason: { type: 'stop' },
      weight_version: '9',
      weight_versions: [{ version: '9', start: 0, end: count }],
    })
    const { text } = await post(server, '/generate', { ...asked, rid: 'r1', stream: true })
    expect(text).toMatch(/data: \[DONE\]\n\n$/)
    const events = eventsOf(text).map((event) => schema.parse(event))
    expect(events.length).toBeGreaterThan(1)
    for (const event of events) {
      expect(whole.text.startsWith(event.text)).toBe(true)
      expect(whole.output_ids.slice(0, event.output_ids.length)).toEqual(event.output_ids)
      expect(event.meta_info.output_token_logprobs).toEqual(pairs.slice(0, event.output_ids.length))
    }
    expect(events.at(-1)).toEqual(whole)
  })

  test('accepts input_ids, and reports a cut reply', async () => {
    await using server = await SimulatorServer.start({ imitate: 'sglang', recordEmitted: 4 })
    const sent = { input_ids: [1, 2, 3], sampling_params: { max_new_tokens: 2 } }
    expect(await postForJson(server, '/generate', sent)).toMatchObject({
      meta_info: { prompt_tokens: 3, completion_tokens: 2, finish_reason: { type: 'length' } },
    })
    expect(server.simulator.emitted().replies).toMatchObject([{ api: 'generate', promptIds: [1, 2, 3] }])
  })

  test.each([[{}], [{ text: 'a', input_ids: [1] }], [{ text: ['a', 'b'] }], [{ input_ids: [[1]] }]])(
    'refuses %j',
    async (sent) => {
      await using server = await SimulatorServer.start({ imitate: 'sglang' })
      expect((await post(server, '/generate', sent)).status).toBe(400)
    },
  )
})

describe('further endpoints', () => {
  test('vLLM returns its version, its weights and the tokens of a prompt', async () => {
    await using server = await SimulatorServer.start({ contextLength: 512 })
    expect(await get(server, '/version')).toEqual({ version: expect.any(String) })
    expect(await get(server, '/weight_info')).toEqual({ weight_version: 'default' })
    expect(await postForJson(server, '/update_weight_version', { new_version: '5' })).toMatchObject({ success: true })
    expect(await get(server, '/weight_info')).toEqual({ weight_version: '5' })
    expect((await post(server, '/update_weight_version', { new_version: 5 })).status).toBe(400)
    const asked = body('chat', question, { return_token_ids: true })
    const reply = z
      .object({ prompt_token_ids: z.array(z.number()) })
      .parse(await postForJson(server, apiPaths.chat, asked))
    const tokens = reply.prompt_token_ids
    expect(await postForJson(server, '/tokenize', asked)).toEqual({ tokens, count: tokens.length, max_model_len: 512 })
    expect(await postForJson(server, '/tokenize', { prompt: 'two words' })).toMatchObject({ count: 2 })
  })

  test.for([
    ['vllm', '/tokenize', 'chat'],
    ['vllm', `/v1${countPaths.messages}`, 'messages'],
    ['sglang', '/tokenize', 'chat'],
    ['sglang', `/v1${countPaths.messages}`, 'messages'],
    ['openai', `/v1${countPaths.responses}`, 'responses'],
    ['anthropic', `/v1${countPaths.messages}`, 'messages'],
  ] as const)('%s counts at %s the same input tokens as in the usage of a reply', async ([imitate, path, api]) => {
    await using server = await SimulatorServer.start({ imitate })
    const asked = body(api, question)
    const counted = (await postForJson(server, path, asked)) as { count?: number; input_tokens?: number }
    const { usage } = (await postForJson(server, apiPaths[api], asked)) as { usage: Record<string, number> }
    expect(counted.count ?? counted.input_tokens).toBe(usage['prompt_tokens'] ?? usage['input_tokens'])
    expect((await post(server, path, {})).status).toBe(400)
    expect(server.stats.requests).toBe(1)
  })

  test('SGLang returns information about its model and server', async () => {
    await using server = await SimulatorServer.start({ imitate: 'sglang', models: 'qwen', weightVersion: '2' })
    for (const path of ['/get_model_info', '/model_info']) {
      expect(await get(server, path)).toMatchObject({ model_path: 'qwen', weight_version: '2' })
    }
    expect(await get(server, '/get_server_info')).toMatchObject({ served_model_name: 'qwen', context_length: null })
    expect((await post(server, '/pause?mode=keep')).status).toBe(404)
  })

  test('Anthropic requires an API version and has its own errors', async () => {
    await using server = await SimulatorServer.start({ imitate: 'anthropic', apiKey: 'secret' })
    const send = (headers: Record<string, string>) => fetch(new URL('/v1/models', server.url), { headers })
    const unversioned = await send({ 'x-api-key': 'secret' })
    expect([unversioned.status, await unversioned.json()]).toEqual([
      400,
      {
        type: 'error',
        error: { type: 'invalid_request_error', message: expect.stringContaining('anthropic-version') },
      },
    ])
    expect((await send({ 'anthropic-version': '2023-06-01' })).status).toBe(401)
    const listed = await send({ 'x-api-key': 'secret', 'anthropic-version': '2023-06-01' })
    expect(await listed.json()).toMatchObject({ data: [{ type: 'model', id: 'sim' }], has_more: false })
  })
})

test.each([
  ['vllm', 'vllm:kv_cache_usage_perc', 'vllm:num_requests_waiting'],
  ['sglang', 'sglang:token_usage', 'sglang:num_queue_reqs'],
] as const)('%s tells its load in its metrics', async (imitate, kvUsage, queued) => {
  await using server = await SimulatorServer.start({ imitate, maxRunning: 1, ttftMs: 60_000, prefixCacheTokens: 40 })
  const requests = Promise.allSettled([1, 2, 3].map(() => post(server, apiPaths.chat, body('chat', question))))
  await vi.waitFor(async () => {
    const answer = await fetchText(new URL('/metrics', server.url))
    expect(answer.statusCode).toBe(200)
    const text = await answer.body.text()
    expect(text).toMatch(new RegExp(`^${queued}\\{model_name="sim"\\} 2$`, 'm'))
    expect(Number(new RegExp(`^${kvUsage}\\{.*\\} (.*)$`, 'm').exec(text)?.[1])).toBeGreaterThan(0.3)
  })
  await server.close()
  await requests
})
