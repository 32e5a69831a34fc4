import { connect } from 'node:net'
import { once } from 'node:events'
import { request as send, Pool } from 'undici'
import { describe, expect, test } from 'vitest'
import { z } from 'zod'
import { activeResources, leftSince } from '../../../test/support/kit/active-resources.ts'
import { Simulator } from '../engine/simulator.ts'
import { SimulatorServer, type SimulatorServerOptions } from './server.ts'

const calculator = {
  type: 'function',
  function: {
    name: 'calculator',
    parameters: { type: 'object', properties: { expression: { type: 'string' } }, required: ['expression'] },
  },
}

const question = (content: string, rest: object = {}) => ({
  model: 'sim',
  messages: [{ role: 'user', content }],
  ...rest,
})

interface Sent {
  readonly status: number
  readonly headers: Record<string, string | string[] | undefined>
  readonly text: string
}

async function post(server: SimulatorServer, path: string, body: object, headers: object = {}): Promise<Sent> {
  const answer = await send(`${server.url}${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify(body),
  })
  return { status: answer.statusCode, headers: answer.headers, text: await answer.body.text() }
}

const chat = (server: SimulatorServer, body: object, headers: object = {}) =>
  post(server, '/chat/completions', body, headers)

/** OpenAI's shape with vLLM's token fields and SGLang's version, and nothing besides. */
const logprobsSchema = z.strictObject({
  content: z.array(
    z.strictObject({
      token: z.string(),
      logprob: z.number().max(0),
      bytes: z.array(z.number().int().min(0).max(255)),
      top_logprobs: z.array(z.never()),
    }),
  ),
})
const usageSchema = z.strictObject({
  prompt_tokens: z.number().int().positive(),
  completion_tokens: z.number().int().positive(),
  total_tokens: z.number().int().positive(),
  prompt_tokens_details: z.strictObject({ cached_tokens: z.number().int() }),
  completion_tokens_details: z.strictObject({ reasoning_tokens: z.number().int() }),
})
const callSchema = z.strictObject({
  id: z.string().startsWith('call_'),
  type: z.literal('function'),
  function: z.strictObject({ name: z.string(), arguments: z.string() }),
})
const finishSchema = z.enum(['stop', 'length', 'tool_calls'])
const headFields = {
  id: z.string().startsWith('chatcmpl-'),
  created: z.number().int(),
  model: z.string(),
  metadata: z.strictObject({ weight_version: z.string() }).optional(),
}
const completionSchema = z.strictObject({
  ...headFields,
  object: z.literal('chat.completion'),
  choices: z.tuple([
    z.strictObject({
      index: z.literal(0),
      message: z.strictObject({
        role: z.literal('assistant'),
        content: z.string().nullable(),
        refusal: z.null(),
        reasoning_content: z.string().optional(),
        tool_calls: z.array(callSchema).min(1).optional(),
      }),
      logprobs: logprobsSchema.nullable(),
      finish_reason: finishSchema,
      token_ids: z.array(z.number().int()).optional(),
    }),
  ]),
  usage: usageSchema,
  prompt_token_ids: z.array(z.number().int()).optional(),
})
const chunkSchema = z.strictObject({
  ...headFields,
  object: z.literal('chat.completion.chunk'),
  choices: z
    .array(
      z.strictObject({
        index: z.literal(0),
        delta: z.strictObject({
          role: z.literal('assistant').optional(),
          content: z.string().optional(),
          refusal: z.null().optional(),
          reasoning_content: z.string().optional(),
          tool_calls: z
            .array(
              z.strictObject({
                index: z.number().int(),
                id: z.string().optional(),
                type: z.literal('function').optional(),
                function: z.strictObject({ name: z.string().optional(), arguments: z.string() }),
              }),
            )
            .optional(),
        }),
        logprobs: logprobsSchema.nullable(),
        finish_reason: finishSchema.nullable(),
        token_ids: z.array(z.number().int()).optional(),
      }),
    )
    .max(1),
  usage: usageSchema.nullish(),
  prompt_token_ids: z.array(z.number().int()).optional(),
})

const dataOf = (text: string) => [...text.matchAll(/^data: (.*)$/gm)].map(([, data]) => data ?? '')

/** Puts a stream together as clients do. */
function assemble(text: string) {
  const lines = dataOf(text)
  expect(lines.at(-1)).toBe('[DONE]')
  let [content, reasoning, finish]: [string, string, string | null] = ['', '', null]
  const calls: { id: string; type: string; function: { name: string; arguments: string } }[] = []
  const [ids, logprobs]: [number[], unknown[]] = [[], []]
  let usage: unknown
  let promptIds: number[] | undefined
  for (const line of lines.slice(0, -1)) {
    const chunk = chunkSchema.parse(JSON.parse(line))
    usage ??= chunk.usage
    promptIds ??= chunk.prompt_token_ids
    const [choice] = chunk.choices
    if (!choice) continue
    content += choice.delta.content ?? ''
    reasoning += choice.delta.reasoning_content ?? ''
    ids.push(...(choice.token_ids ?? []))
    logprobs.push(...(choice.logprobs?.content ?? []))
    for (const delta of choice.delta.tool_calls ?? []) {
      calls[delta.index] ??= { id: delta.id ?? '', type: 'function', function: { name: '', arguments: '' } }
      const call = calls[delta.index]?.function
      if (call) {
        call.name += delta.function.name ?? ''
        call.arguments += delta.function.arguments
      }
    }
    finish = choice.finish_reason ?? finish
  }
  return { content, reasoning, calls, finish, usage, ids, logprobs, promptIds }
}

describe('chat completions', () => {
  test.each([
    ['text', {}, {}],
    ['a tool call', {}, { tools: [calculator] }],
    ['reasoning and a tool call', { reasoning: true }, { tools: [calculator] }],
    ['a reply cut to 4 tokens', {}, { max_tokens: 4 }],
    ['a call cut in its arguments', {}, { tools: [calculator], max_completion_tokens: 8 }],
    ['a call cut in its name', { reasoning: true }, { tools: [calculator], max_tokens: 16 }],
    ['a paced reply', { ttftMs: 2, tokensPerSecond: 2000 }, {}],
  ])('%s is the same streamed and whole, and has the official format', async (_, options, fields) => {
    await using server = await SimulatorServer.start({ imitate: 'millrace', ...options, weightVersion: '3' })
    const asked = question('What is 17 * 3? End with `Answer: <number>`.', {
      ...fields,
      seed: 5,
      logprobs: true,
      return_token_ids: true,
    })
    const whole = completionSchema.parse(JSON.parse((await chat(server, asked)).text))
    const stream = await chat(server, { ...asked, stream: true, stream_options: { include_usage: true } })
    expect(stream.headers['content-type']).toBe('text/event-stream')
    const streamed = assemble(stream.text)
    const [{ message, finish_reason, token_ids, logprobs }] = whole.choices
    expect(streamed).toEqual({
      content: message.content ?? '',
      reasoning: message.reasoning_content ?? '',
      calls: message.tool_calls ?? [],
      finish: finish_reason,
      usage: whole.usage,
      ids: token_ids,
      logprobs: logprobs?.content,
      promptIds: whole.prompt_token_ids,
    })
    expect(token_ids).toHaveLength(whole.usage.completion_tokens)
    expect(whole.prompt_token_ids).toHaveLength(whole.usage.prompt_tokens)
    expect(whole.metadata).toEqual({ weight_version: '3' })
  })

  test('are the same as in process', async () => {
    await using server = await SimulatorServer.start({ seed: 4, skill: 0.5 })
    await using simulator = new Simulator({ seed: 4, skill: 0.5 })
    for (let seed = 0; seed < 20; seed += 1) {
      const asked = question('What is 17 * 3?', { seed, logprobs: true, return_token_ids: true })
      const [choice] = completionSchema.parse(JSON.parse((await chat(server, asked)).text)).choices
      const reply = await simulator.send({
        messages: [{ role: 'user', content: 'What is 17 * 3?' }],
        tools: [],
        sampling: { seed },
        captureTokens: true,
        sessionId: '',
        retry: 0,
        signal: server.closedSignal,
      })
      expect(choice.message.content).toBe(reply.message.content)
      expect(choice.token_ids).toEqual([...(reply.tokens?.ids ?? [])])
      expect(choice.logprobs?.content.map(({ logprob }) => logprob)).toEqual([...(reply.tokens?.logprobs ?? [])])
    }
  })

  test('accept client requests with nulls, parts, images and unknown fields', async () => {
    await using server = await SimulatorServer.start()
    const { status, text } = await chat(server, {
      model: 'anything',
      user: 'me',
      temperature: null,
      tool_choice: null,
      messages: [
        { role: 'developer', content: [{ type: 'text', text: 'Be brief.' }] },
        {
          role: 'user',
          name: 'me',
          content: [
            { type: 'text', text: 'What is 1 + 2?' },
            { type: 'image_url', image_url: { url: 'https://example.org/x.png' } },
          ],
        },
        {
          role: 'assistant',
          tool_calls: [{ id: 'x', type: 'function', function: { name: 'calculator', arguments: '' } }],
        },
        { role: 'tool', tool_call_id: 'x', content: [{ type: 'text', text: '3' }] },
      ],
    })
    expect(status).toBe(200)
    expect(completionSchema.parse(JSON.parse(text)).choices[0].message.content).toBe('The answer is 3.')
  })

  test.each([
    [{}, /model/],
    [{ model: 'sim', messages: [] }, /messages/],
    [{ model: 'sim', messages: [{ role: 'robot', content: '' }] }, /messages\[0\]\.role/],
    [question('1 + 2', { max_tokens: 0 }), /max_tokens/],
    [question('1 + 2', { n: 3 }), /n must be 1: send several requests/],
    [question('1 + 2', { tool_choice: { type: 'function', function: { name: 'no' } } }), /tool no/],
  ])('refuse %j with a reason', async (body, message) => {
    await using server = await SimulatorServer.start()
    const { status, text } = await chat(server, body)
    expect(status).toBe(400)
    const { error } = JSON.parse(text) as { error: { message: string; type: string } }
    expect(error.message).toMatch(message)
    expect(error.type).toBe('invalid_request_error')
  })
})

describe('responses', () => {
  interface Item {
    type: string
    content?: { text: string }[]
    name?: string
    arguments?: string
    call_id?: string
  }
  interface Response {
    id: string
    object: string
    status: string
    incomplete_details: { reason: string } | null
    output: Item[]
    usage: Record<string, unknown>
  }
  const tool = { type: 'function', ...calculator.function }

  test('hold text, calls and reasoning; a stream gives the same as a whole reply', async () => {
    await using server = await SimulatorServer.start({ reasoning: true })
    for (const fields of [{}, { tools: [tool] }, { max_output_tokens: 18 }]) {
      const asked = { model: 'sim', input: 'What is 17 * 3?', seed: 1, ...fields }
      // They differ in when they were made, and in the number at the end of their names.
      const textOf = async (body: object): Promise<string> =>
        (await post(server, '/responses', body)).text.replaceAll(/([a-z]+_[0-9a-f]{8}-[0-9a-f]{8})-\d+/g, '$1')
      const { created_at: _, ...whole } = JSON.parse(await textOf(asked)) as Response & { created_at: number }
      const streamText = await textOf({ ...asked, stream: true })
      const events = dataOf(streamText).map((data) => JSON.parse(data) as Record<string, unknown> & { type: string })
      expect(events.map((event) => event['sequence_number'])).toEqual(events.map((_event, index) => index))
      expect(events[0]?.type).toBe('response.created')
      const last = events.at(-1)
      expect(last?.type).toBe(`response.${whole.status}`)
      expect(last?.['response']).toMatchObject(whole)
      const done = events.filter(({ type }) => type === 'response.output_item.done').map((event) => event['item'])
      expect(done).toEqual(whole.output)
      const added = events.filter(({ type }) => type === 'response.output_item.added')
      expect(added).toHaveLength(whole.output.length)
      const deltas = (type: string) =>
        events
          .filter((event) => event.type === type)
          .map((event) => String(event['delta']))
          .join('')
      const item = (type: string) => whole.output.find((candidate) => candidate.type === type)
      expect(deltas('response.output_text.delta')).toBe(item('message')?.content?.[0]?.text ?? '')
      expect(deltas('response.reasoning_text.delta')).toBe(item('reasoning')?.content?.[0]?.text ?? '')
      expect(deltas('response.function_call_arguments.delta')).toBe(item('function_call')?.arguments ?? '')
      if ('max_output_tokens' in fields) expect(whole.incomplete_details).toEqual({ reason: 'max_output_tokens' })
    }
  })

  test('give the same reply to a conversation of items as to one of messages', async () => {
    await using server = await SimulatorServer.start({ reasoning: true })
    const asked = { model: 'sim', instructions: 'Be brief.', tools: [tool] }
    const input: object[] = [{ role: 'user', content: [{ type: 'input_text', text: 'What is 17 * 3?' }] }]
    const first = JSON.parse((await post(server, '/responses', { ...asked, input })).text) as Response
    const call = first.output.find(({ type }) => type === 'function_call')
    expect(JSON.parse(call?.arguments ?? '')).toEqual({ expression: '17 * 3' })
    input.push(...first.output, { type: 'function_call_output', call_id: call?.call_id, output: '51' })
    const second = JSON.parse((await post(server, '/responses', { ...asked, input })).text) as Response
    expect(second.output.at(-1)?.content?.[0]?.text).toBe('The answer is 51.')

    const messages = [
      { role: 'system', content: 'Be brief.' },
      { role: 'user', content: 'What is 17 * 3?' },
    ]
    const sameInChat = await chat(server, { model: 'sim', messages, tools: [calculator] })
    const { usage } = completionSchema.parse(JSON.parse(sameInChat.text))
    expect(first.usage['input_tokens']).toBe(usage.prompt_tokens)
  })

  test('refuse to continue a response that is not kept', async () => {
    await using server = await SimulatorServer.start()
    const { status, text } = await post(server, '/responses', {
      model: 'sim',
      input: 'x',
      previous_response_id: 'resp_1',
    })
    expect(status).toBe(400)
    expect(text).toMatch(/send the whole conversation/)
  })
})

describe('faults over HTTP', () => {
  const start = (options: SimulatorServerOptions) => SimulatorServer.start({ retryAfterMs: 250, ...options })
  const asked = question('What is 17 * 3? End with `Answer: <number>`.')

  test('429 has a Retry-After header', async () => {
    await using server = await start({ faults: { rateLimit: 1 } })
    const { status, headers, text } = await chat(server, asked)
    expect(status).toBe(429)
    expect(headers).toMatchObject({ 'retry-after': '1', 'retry-after-ms': '250' })
    expect(JSON.parse(text)).toMatchObject({ error: { code: 'rate_limit_exceeded', type: 'rate_limit_error' } })
  })

  test('a server error has status 500', async () => {
    await using server = await start({ faults: { serverError: 1 } })
    expect((await chat(server, asked)).status).toBe(500)
  })

  test('a cut reply loses its connection during the body', async () => {
    await using server = await start({ faults: { cut: 1 } })
    await expect(chat(server, asked)).rejects.toThrow(/terminated|closed|aborted/)
    expect(server.stats).toMatchObject({ requests: 1, inFlight: 0, byStatus: { 200: 1 } })
  })

  test('a cut stream loses its connection or ends without a completion event', async () => {
    await using server = await start({ faults: { cut: 1 } })
    const ends = { abrupt: 0, quiet: 0 }
    for (let seed = 0; seed < 20; seed += 1) {
      await chat(server, { ...asked, seed, stream: true }).then(
        ({ text }) => {
          ends.quiet += 1
          expect(text).not.toContain('[DONE]')
          expect(text).not.toMatch(/"finish_reason":"/)
        },
        () => {
          ends.abrupt += 1
        },
      )
    }
    expect(ends.abrupt).toBeGreaterThan(5)
    expect(ends.quiet).toBeGreaterThan(1)
  })

  test.each([false, true])('malformed replies are complete but not JSON (stream: %s)', async (stream) => {
    await using server = await start({ faults: { malformed: 1 } })
    const { status, text } = await chat(server, { ...asked, stream })
    expect(status).toBe(200)
    const bodies = stream ? dataOf(text).filter((data) => data !== '[DONE]') : [text]
    expect(() => bodies.map((body) => JSON.parse(body) as unknown)).toThrow(SyntaxError)
  })

  test('a hang never answers, and a client that disconnects is counted', async () => {
    await using server = await start({ faults: { hang: 1 } })
    const controller = new AbortController()
    const sent = send(`${server.url}/chat/completions`, {
      method: 'POST',
      body: JSON.stringify(asked),
      signal: controller.signal,
    })
    sent.catch(() => {})
    await expect.poll(() => server.stats.inFlight).toBe(1)
    controller.abort()
    await expect(sent).rejects.toThrow(/abort/i)
    await expect.poll(() => server.stats).toMatchObject({ inFlight: 0, aborted: 1, byStatus: {} })
  })

  test('each retry count draws the faults again', async () => {
    await using server = await start({ faults: { serverError: 0.5 } })
    const statuses: number[] = []
    for (let retry = 0; retry < 20; retry += 1) {
      statuses.push((await chat(server, asked, { 'x-stainless-retry-count': String(retry) })).status)
    }
    expect(new Set(statuses)).toEqual(new Set([200, 500]))
    expect((await chat(server, asked, { 'x-stainless-retry-count': '3' })).status).toBe(statuses[3])
  })

  test('a model name can request a fault', async () => {
    await using server = await start({})
    const ask = (model: string) => chat(server, { ...asked, model })
    expect((await ask('fault:overload')).status).toBe(503)
    expect((await ask('fault:rateLimit')).status).toBe(429)
    expect((await ask('fault:serverError')).status).toBe(500)
    await expect(ask('fault:cut')).rejects.toThrow(/terminated|closed|aborted/)
    const unknown = await ask('fault:gremlins')
    expect(unknown.status).toBe(404)
    expect(unknown.text).toMatch(/the faults are rateLimit, /)
  })

  test('settings can be changed at run time', async () => {
    await using server = await start({})
    const settings = (body: unknown) =>
      send(new URL('/sim/settings', server.url), { method: 'POST', body: JSON.stringify(body) })
    const change = async (body: unknown) => {
      const answer = await settings(body)
      return { status: answer.statusCode, body: (await answer.body.json()) as Record<string, unknown> }
    }
    expect(await change({ overload: true })).toMatchObject({ status: 200 })
    expect((await chat(server, asked)).status).toBe(503)
    await change({ overload: false, 'faults.serverError': 1 })
    expect((await chat(server, asked)).status).toBe(500)
    expect((await change({ faults: { serverError: 0 } })).body).toMatchObject({ faults: { serverError: 0 } })
    expect((await chat(server, asked)).status).toBe(200)
    expect(await change({ skil: 1 })).toMatchObject({ status: 400 })
    expect(await change(null)).toMatchObject({ status: 400 })
    const stats = await send(new URL('/sim/stats', server.url))
    expect(await stats.body.json()).toEqual({
      requests: 3,
      inFlight: 0,
      aborted: 0,
      byStatus: { 200: 1, 500: 1, 503: 1 },
    })
  })
})

describe('the server', () => {
  test('without a key, answers only requests with its own Host, and Origin if present', async () => {
    await using server = await SimulatorServer.start()
    await using locked = await SimulatorServer.start({ apiKey: 'secret' })
    await using open = await SimulatorServer.start({ host: '0.0.0.0' })
    const evil = [
      { host: 'evil.example' },
      { host: `evil.example:${server.port}` },
      { origin: 'http://localhost:3000' },
    ]
    const steer = async ({ port }: SimulatorServer, headers: Record<string, string>) => {
      const { statusCode, body } = await send(`http://127.0.0.1:${port}/health`, { headers })
      await body.dump()
      return statusCode
    }
    for (const headers of evil) {
      const refused = await chat(server, question('1 + 2'), headers)
      expect(refused).toMatchObject({ status: 403, text: expect.stringContaining('this server has no key') })
      expect(await steer(server, headers)).toBe(403)
      expect((await chat(locked, question('1 + 2'), { ...headers, authorization: 'Bearer secret' })).status).toBe(200)
      // What needs no key there is not open to web pages either.
      expect(await steer(locked, headers)).toBe(403)
      expect(await steer(open, headers)).toBe(200)
    }
    const own = { host: `localhost:${server.port}`, origin: `http://localhost:${server.port}` }
    expect((await chat(server, question('1 + 2'), own)).status).toBe(200)
  })

  test('checks key, model, context length, route, JSON and size', async () => {
    await using server = await SimulatorServer.start({ apiKey: 'secret', models: 'a, b', contextLength: '30' })
    const ask = (fields: object, authorization = 'Bearer secret') =>
      chat(server, question('1 + 2', { model: 'a', ...fields }), { authorization })
    expect((await ask({})).status).toBe(200)
    const codes = async (sent: Promise<Sent>) => {
      const { status, text } = await sent
      return [status, (JSON.parse(text) as { error: { code: string } }).error.code]
    }
    expect(await codes(ask({}, 'Bearer wrong'))).toEqual([401, 'invalid_api_key'])
    expect(await codes(ask({ model: 'c' }))).toEqual([404, 'model_not_found'])
    expect(await codes(ask({ max_tokens: 100 }))).toEqual([400, 'context_length_exceeded'])
    expect(await codes(post(server, '/embeddings', {}, { authorization: 'Bearer secret' }))).toEqual([404, 'not_found'])
    const raw = async (body: string | Buffer) => {
      const answer = await send(`${server.url}/chat/completions`, {
        method: 'POST',
        body,
        headers: { authorization: 'Bearer secret' },
      })
      return [answer.statusCode, await answer.body.text()] as const
    }
    expect(await raw('{"model":')).toEqual([400, expect.stringContaining('not JSON')])
    expect(await raw(Buffer.from('{"model":"\u00e9"}', 'latin1'))).toEqual([
      400,
      expect.stringContaining('not UTF-8 (byte 10 '),
    ])
    const models = await send(`${server.url}/models`, { headers: { authorization: 'Bearer secret' } })
    expect(await models.body.json()).toMatchObject({ object: 'list', data: [{ id: 'a' }, { id: 'b' }] })
    const health = await send(new URL('/health', server.url))
    expect(await health.body.json()).toEqual({ status: 'ok' })
  })

  test('refuses a body of more than 32 MB during the upload', async () => {
    await using server = await SimulatorServer.start()
    const socket = connect(server.port, '127.0.0.1')
    const size = 33 * 1024 * 1024
    socket.write(`POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: ${size}\r\n\r\n`)
    socket.write(Buffer.alloc(size - 1, ' '))
    const [answer] = (await once(socket, 'data')) as [Buffer]
    expect(answer.toString()).toMatch(/^HTTP\/1.1 413 /)
    socket.destroy()
  })

  test('reports a port that is in use', async () => {
    await using server = await SimulatorServer.start()
    await expect(SimulatorServer.start({ port: server.port })).rejects.toMatchObject({ code: 'config_invalid' })
    await expect(SimulatorServer.start({ port: 'many' })).rejects.toThrow(/port/)
  })

  test('closes twice, with requests and streams in flight', async () => {
    const server = await SimulatorServer.start({ ttftMs: 0, tokensPerSecond: 1, faults: { hang: 0 } })
    const stream = await send(`${server.url}/chat/completions`, {
      method: 'POST',
      body: JSON.stringify(question('What is 17 * 3?', { stream: true })),
    })
    const whole = chat(server, question('What is 17 * 3?'))
    whole.catch(() => {})
    await expect.poll(() => server.stats.inFlight).toBe(2)
    await Promise.all([server.close(), server.close()])
    await expect(stream.body.text()).rejects.toThrow()
    await expect(whole).rejects.toThrow()
    expect(server.stats.inFlight).toBe(0)
    await expect(chat(server, question('1 + 2'))).rejects.toThrow(/ECONNREFUSED|connect/)
  })

  test('notices 1,000 aborted requests and leaves no resource', async () => {
    await using server = await SimulatorServer.start({ ttftMs: 60_000 })
    const pool = new Pool(new URL(server.url).origin, { connections: 1000, pipelining: 1 })
    const before = activeResources()
    const controller = new AbortController()
    const sent = Array.from({ length: 1000 }, (_, seed) =>
      pool
        .request({
          path: '/v1/chat/completions',
          method: 'POST',
          body: JSON.stringify(question('What is 17 * 3?', { seed, stream: seed % 2 === 0 })),
          signal: controller.signal,
        })
        .then(
          () => 'answered',
          () => 'aborted',
        ),
    )
    await expect.poll(() => server.stats.inFlight).toBe(1000)
    controller.abort()
    expect(new Set(await Promise.all(sent))).toEqual(new Set(['aborted']))
    await expect.poll(() => server.stats).toMatchObject({ inFlight: 0, aborted: 1000, byStatus: {} })
    await pool.destroy()
    expect(await leftSince(before)).toEqual([])
    server.simulator.change({ ttftMs: 0, maxConcurrent: 1 })
    expect((await chat(server, question('1 + 2'))).status).toBe(200)
  })
})

test('a repeated question gets the same reply under another id', async () => {
  await using server = await SimulatorServer.start({})
  const asked = { model: 'sim', messages: [{ role: 'user', content: 'What is 17 * 3?' }], seed: 1 }
  const ask = async () => JSON.parse((await post(server, '/chat/completions', asked)).text) as Record<string, unknown>
  const { id: first, created: _first, ...reply } = await ask()
  const { id: second, created: _second, ...again } = await ask()
  expect(again).toEqual(reply)
  expect(second).not.toBe(first)
})

test('the error for a port in use names the cause once', async () => {
  await using first = await SimulatorServer.start()
  await expect(SimulatorServer.start({ port: first.port })).rejects.toThrow(
    `cannot listen on 127.0.0.1:${first.port}: listen EADDRINUSE: address already in use`,
  )
})
