import type { ServerResponse } from 'node:http'
import { describe, expect, test } from 'vitest'
import type { Message, ToolDefinition } from '../../schema/index.ts'
import { codeOf, failureOf } from '../../../test/support/inference/code-of.ts'
import {
  eventText,
  faultIn,
  messagesEvents,
  messagesReply,
  type Block,
  type MessagesBody,
} from '../../../test/support/inference/messages-server.ts'
import { ask, openBackend, type Setting } from '../../../test/support/inference/open-backend.ts'
import { ScriptedServer, sendJson, type Handler } from '../../../test/support/inference/scripted-server.ts'
import type { BackendReply, PartialReply, ReplyDelta } from '../../apis/backend.ts'

const api = 'messages'
const said: Block[] = [
  { type: 'thinking', thinking: 'hm', signature: 's' },
  { type: 'text', text: 'héllo' },
  { type: 'tool_use', id: 'c1', name: 'look', input: { x: 'é' } },
]

async function exchange(handler: Handler, setting: Setting = {}): Promise<BackendReply> {
  await using server = await ScriptedServer.start(handler)
  await using backend = openBackend(server.url, { api, ...setting })
  return await backend.send(ask())
}

function beginStream(response: ServerResponse): void {
  response.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8' })
}

describe('a request', () => {
  test('carries the key and the version in the headers of the API', async () => {
    await using server = await ScriptedServer.start((response) => sendJson(response, messagesReply(said)))
    await using backend = openBackend(server.url, { api, env: { OPENAI_API_KEY: 'secret' } })
    await backend.send(ask())
    expect(server.requests[0]).toMatchObject({
      method: 'POST',
      path: '/v1/messages',
      headers: { 'x-api-key': 'secret', 'anthropic-version': '2023-06-01', authorization: 'Bearer secret' },
    })
  })

  test('carries the configured key and version headers instead of its own', async () => {
    await using server = await ScriptedServer.start((response) => sendJson(response, messagesReply(said)))
    const headers = { 'X-Api-Key': 'mine', 'Anthropic-Version': '2099-01-01' }
    await using backend = openBackend(server.url, { api, env: { OPENAI_API_KEY: 'secret' }, headers })
    await backend.send(ask())
    const { headers: sent } = server.requests[0] ?? { headers: {} }
    expect(sent).toMatchObject({ 'x-api-key': 'mine', 'anthropic-version': '2099-01-01' })
    expect(JSON.stringify(sent)).not.toContain('secret')
  })

  test('with a client body carries its headers, unless the config overrides them', async () => {
    await using server = await ScriptedServer.start((response) => sendJson(response, messagesReply(said)))
    await using open = openBackend(server.url, { api })
    await using fixed = openBackend(server.url, { api, headers: { 'Anthropic-Version': '2099-01-01' } })
    const bodyHeaders = { 'anthropic-version': '2026-10-21', 'anthropic-beta': 'one,two' }
    await open.send(ask({ body: Buffer.from('{}'), bodyHeaders }))
    await fixed.send(ask({ body: Buffer.from('{}'), bodyHeaders }))
    expect(server.requests.map(({ headers }) => headers)).toMatchObject([
      bodyHeaders,
      { 'anthropic-version': '2099-01-01', 'anthropic-beta': 'one,two' },
    ])
  })
})

describe('a reply', () => {
  test.each([
    [400, 'invalid_request_error', 'max_tokens: 9 > 8', 'model_rejected'],
    [400, 'invalid_request_error', 'prompt is too long: 9 tokens > 8 maximum', 'context_length'],
    [401, 'authentication_error', 'invalid x-api-key', 'model_auth'],
    [403, 'permission_error', 'x', 'model_auth'],
    [404, 'not_found_error', 'model: x', 'model_not_found'],
    [413, 'request_too_large', 'x', 'model_rejected'],
    [429, 'rate_limit_error', 'x', 'model_rate_limited'],
    [500, 'api_error', 'x', 'model_server_error'],
    [529, 'overloaded_error', 'Overloaded', 'model_overloaded'],
  ])('with status %i: %s', async (status, type, message, code) => {
    const work = (): Promise<unknown> =>
      exchange((response) => sendJson(response, { type: 'error', error: { type, message }, request_id: 'r' }, status))
    const error = await failureOf(work)
    expect(error).toMatchObject({ code, data: { status } })
    expect(String(error)).toContain(message)
  })

  test('gives the delay before the next try', async () => {
    const error = await failureOf(() =>
      exchange((response) => {
        response.writeHead(429, { 'retry-after': '7', 'content-type': 'application/json' })
        response.end(JSON.stringify({ type: 'error', error: { type: 'rate_limit_error', message: 'x' } }))
      }),
    )
    expect(error).toMatchObject({ data: { retryAfterMs: 7000 } })
  })

  test('may be whole although a stream was requested', async () => {
    const reply = await exchange((response) => sendJson(response, messagesReply(said)), { stream: true })
    expect(reply.message.content).toBe('héllo')
  })
})

describe('a stream', () => {
  test('cut at any event is complete only after its stop reason', async () => {
    const events = messagesEvents(said).map(eventText)
    let handler: Handler = () => undefined
    await using server = await ScriptedServer.start((response, request) => handler(response, request))
    await using backend = openBackend(server.url, { api, stream: true })
    for (const isClean of [true, false]) {
      for (let count = 0; count <= events.length; count += 1) {
        handler = (response) => {
          beginStream(response)
          const written = events.slice(0, count).join('')
          if (isClean) response.end(written)
          // The head goes out first: a connection that breaks before it is another failure.
          else response.write(written === '' ? ': nothing\n\n' : written, () => response.destroy())
        }
        const partials: PartialReply[] = []
        const sink = { onEvents: () => true, onPartial: (partial: PartialReply) => void partials.push(partial) }
        const end = await backend.send(ask({ sink })).then(
          (reply) => reply.finishReason,
          (error: unknown) => (error as { code: string }).code,
        )
        const where = `${count} of ${events.length} events, ${isClean ? 'clean' : 'broken'}`
        const isEnded = count >= events.length - 1
        expect(end, where).toBe(isEnded ? 'tool_calls' : 'model_truncated')
        expect(partials, where).toHaveLength(isEnded || count === 0 ? 0 : 1)
      }
    }
  })

  test('reaches a sink event by event', async () => {
    await using server = await ScriptedServer.start((response) => {
      beginStream(response)
      // One byte at a time: nothing depends on where a packet ends.
      for (const byte of Buffer.from(messagesEvents(said).map(eventText).join(''))) response.write(Buffer.of(byte))
      response.end()
    })
    await using backend = openBackend(server.url, { api })
    const deltas: ReplyDelta[] = []
    const ends: boolean[] = []
    const reply = await backend.send(
      ask({
        stream: true,
        sink: {
          onEvents: (events) => {
            deltas.push(...events.flatMap((event) => event.deltas))
            ends.push(...events.map(({ isEnd }) => isEnd))
            return true
          },
        },
      }),
    )
    expect(JSON.parse(server.requests[0]?.body ?? '')).toMatchObject({ stream: true })
    const texts = (kind: string): string =>
      deltas.map((delta) => (delta.kind === kind && 'text' in delta ? delta.text : '')).join('')
    expect(texts('content')).toBe(reply.message.content)
    expect(texts('reasoning')).toBe(reply.message.reasoning_content)
    expect(texts('arguments')).toBe(reply.message.tool_calls?.[0]?.function.arguments)
    expect(ends.slice(-3)).toEqual([false, true, true])
  })

  test('with an error or an invalid event in it fails with that error', async () => {
    const [first = '', ...rest] = messagesEvents(said).map(eventText)
    const broken: [string, string][] = [
      [eventText({ type: 'error', error: { type: 'overloaded_error', message: 'Overloaded' } }), 'model_overloaded'],
      [eventText({ type: 'error', error: { type: 'api_error', message: 'x' } }), 'model_server_error'],
      ['event: content_block_delta\ndata: {"type":"content_bl\n\n', 'model_malformed'],
      ['data: <html>\n\n', 'model_malformed'],
      [eventText({ type: 'content_block_delta', index: 0, delta: 7 }), 'model_malformed'],
    ]
    for (const [event, code] of broken) {
      const work = (): Promise<unknown> =>
        exchange((response) => {
          beginStream(response)
          response.end([first, event, ...rest].join(''))
        })
      expect(await codeOf(work), event).toBe(code)
    }
  })
})

const tools: ToolDefinition[] = [{ type: 'function', function: { name: 'look', parameters: { type: 'object' } } }]
/** What the model says, turn by turn: reasoning, text, several calls at once, one of them without arguments. */
const script: Block[][] = Array.from({ length: 7 }, (_, turn) => {
  const text = { type: 'text', text: `turn ${turn}: été` }
  const thinking = { type: 'thinking', thinking: `why ${turn}`, signature: 's' }
  const call = (number: number): Block => {
    return {
      type: 'tool_use',
      id: `c${turn}-${number}`,
      name: 'look',
      input: number === 0 ? {} : { at: [turn, number] },
    }
  }
  if (turn === 6) return [thinking, text]
  return turn === 2 ? [call(0)] : [thinking, text, call(0), call(1)]
})

describe('a conversation', () => {
  test.each([false, true])(
    'of 20 messages follows the rules of the API and grows only at its end (stream: %s)',
    async (stream) => {
      let turn = 0
      await using server = await ScriptedServer.start((response, { body }) => {
        const fault = faultIn(JSON.parse(body) as MessagesBody)
        if (fault !== undefined) {
          sendJson(response, { type: 'error', error: { type: 'invalid_request_error', message: fault } }, 400)
          return
        }
        const blocks = script[turn] ?? []
        turn += 1
        if (!stream) {
          sendJson(response, messagesReply(blocks))
          return
        }
        beginStream(response)
        response.end(messagesEvents(blocks).map(eventText).join(''))
      })
      await using backend = openBackend(server.url, { api, stream })
      const messages: Message[] = [
        { role: 'system', content: 'be brief' },
        {
          role: 'user',
          content: [
            { type: 'text', text: 'look at this' },
            { type: 'image_url', image_url: { url: 'data:image/png;base64,AA==' } },
          ],
        },
      ]
      for (;;) {
        const { message } = await backend.send(ask({ messages: [...messages], tools }))
        messages.push(message)
        const calls = message.tool_calls ?? []
        if (calls.length === 0) break
        for (const [index, call] of calls.entries()) {
          const content = `result of ${call.id}`
          messages.push({ role: 'tool', tool_call_id: call.id, content, ...(index === 1 && { is_error: true }) })
        }
      }
      expect(messages).toHaveLength(20)
      expect(messages.filter(({ role }) => role === 'assistant')).toEqual(script.map(messageOf))
      const sent = server.requests.map(({ body }) => JSON.parse(body) as MessagesBody)
      for (const [index, { messages: turns, system }] of sent.entries()) {
        expect(system).toEqual([{ type: 'text', text: 'be brief' }])
        expect(turns.slice(0, -2)).toEqual(sent[index - 1]?.messages ?? [])
        // Signed thinking is not kept, so it does not go back; everything else of a turn does.
        const earlier = script[index - 1]?.filter(({ type }) => type !== 'thinking')
        if (earlier) expect(turns.at(-2)?.content).toEqual(earlier)
      }
    },
  )
})

function messageOf(blocks: readonly Block[]): Message {
  const of = (type: string): Block[] => blocks.filter((block) => block.type === type)
  const calls = of('tool_use').map(({ id, name, input }) => {
    return {
      id: String(id),
      type: 'function' as const,
      function: { name: String(name), arguments: JSON.stringify(input) },
    }
  })
  const [text] = of('text')
  const [thinking] = of('thinking')
  return {
    role: 'assistant',
    content: text ? String(text['text']) : null,
    ...(thinking && { reasoning_content: String(thinking['thinking']) }),
    ...(calls.length > 0 && { tool_calls: calls }),
  }
}
