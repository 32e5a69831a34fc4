import { describe, expect, test } from 'vitest'
import type { MillraceError } from '../../errors/index.ts'
import type { Backend, BackendRequest } from '../../apis/backend.ts'
import { HttpBackend, modelConfigSchema } from '../../inference/index.ts'
import type { ApiName, Message, ToolDefinition } from '../../schema/index.ts'
import { SimulatorServer } from './server.ts'
import { Simulator } from '../engine/simulator.ts'

const calculator: ToolDefinition = {
  type: 'function',
  function: {
    name: 'calculator',
    parameters: { type: 'object', properties: { expression: { type: 'string' } }, required: ['expression'] },
  },
}

const afterCall: Message[] = [
  { role: 'system', content: 'End with `Answer: <number>`.' },
  { role: 'user', content: 'What is 12 * 3?' },
  {
    role: 'assistant',
    content: null,
    tool_calls: [
      { id: 'call_1', type: 'function', function: { name: 'calculator', arguments: '{"expression":"12 * 3"}' } },
    ],
  },
  { role: 'tool', tool_call_id: 'call_1', content: '36' },
]

/** Only chat has seeds and token ids; elsewhere the requests differ by what they say. */
function requests(api: ApiName): BackendRequest[] {
  return Array.from({ length: 70 }, (_, index) => ({
    messages: index % 5 === 0 ? afterCall : [{ role: 'user', content: `What is ${index} + 17?` }],
    tools: index % 2 === 0 ? [calculator] : [],
    // Anthropic's API carries arguments as an object: a call that is cut in them has no place in it.
    sampling: {
      ...(api === 'chat' && { seed: index }),
      ...(index % 7 === 0 && (api !== 'messages' || index % 2 === 1) && { maxTokens: 6 }),
    },
    captureTokens: api === 'chat',
    sessionId: `session-${index}`,
    retry: index % 3,
    signal: new AbortController().signal,
  }))
}

/** The result of one try, apart from how long it took. */
async function outcomeOf(backend: Backend, request: BackendRequest): Promise<unknown> {
  try {
    const { message, finishReason, usage, tokens } = await backend.send(request)
    return { message, finishReason, usage, tokens }
  } catch (error) {
    const { code, data } = error as MillraceError
    return { code, retryAfterMs: data['retryAfterMs'] }
  }
}

describe('a client over HTTP gets the same reply as in process', () => {
  const options = {
    skill: 0.7,
    sloppiness: 0.3,
    imitate: 'millrace' as const,
    weightVersion: '5',
    routedExperts: '3x2',
    faults: {
      rateLimit: 0.1,
      serverError: 0.05,
      cut: 0.1,
      malformed: 0.1,
      kill: 0.05,
      quietEnd: 0.05,
      midstreamError: 0.1,
    },
  }

  test.each([
    { api: 'chat', stream: false },
    { api: 'chat', stream: true },
    { api: 'responses', stream: false },
    { api: 'responses', stream: true },
    { api: 'messages', stream: false },
    { api: 'messages', stream: true },
  ] as const)('$api, stream: $stream', async ({ api, stream }) => {
    // The same holds for broken JSON.
    const settings = api === 'messages' ? { ...options, sloppiness: 0 } : options
    await using server = await SimulatorServer.start(settings)
    await using simulator = new Simulator(settings)
    const config = modelConfigSchema.parse({ name: 'sim', api, stream, backends: [{ url: server.url }] })
    const [backend] = config.backends
    if (!backend) throw new Error('there is no backend')
    await using client = new HttpBackend(config, backend, {})
    const codes = new Set<unknown>()
    for (const request of requests(api)) {
      const inProcess = await outcomeOf(simulator, request)
      expect(await outcomeOf(client, request)).toEqual(inProcess)
      codes.add((inProcess as { code?: string }).code)
    }
    expect(codes).toEqual(
      new Set([undefined, 'model_rate_limited', 'model_server_error', 'model_truncated', 'model_malformed']),
    )
  })
})
