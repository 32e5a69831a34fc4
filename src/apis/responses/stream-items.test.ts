import { accumulateResponse } from 'openai/lib/responses/ResponseAccumulator'
import type { Response, ResponseStreamEvent } from 'openai/resources/responses/responses'
import { describe, expect, test } from 'vitest'
import { seededRandom } from '../../kit/index.ts'
import type { BackendReply, ReplyDelta } from '../backend.ts'
import type { AssistantMessage, JsonObject, Message } from '../../schema/index.ts'
import { RandomConversation } from '../../../test/support/apis/random-conversation.ts'
import { headOf } from '../../../test/support/apis/reply-server.ts'
import { responsesServer } from './write-stream.ts'
import type { ReplyHead, ServerSentEvent } from '../server-side.ts'

const seeds = Array.from({ length: 500 }, (_, seed) => seed)
const usage = { calls: 1, input: 10, cachedInput: 4, output: 6, reasoning: 2 }

function begin(fields: JsonObject = {}): ReplyHead {
  return headOf(responsesServer, responsesServer.read({ model: 'm', input: 'Hi', stream: true, ...fields }))
}

function streamed(head: ReplyHead, deltas: readonly ReplyDelta[], reply: BackendReply): ServerSentEvent[] {
  const writer = responsesServer.stream(head)
  return [...writer.start(), ...deltas.flatMap((delta) => writer.delta(delta)), ...writer.end(reply)]
}

/** What the official client makes of the pieces alone, and of the last event; it refuses what does not fit together. */
function understood(events: readonly ServerSentEvent[]): { pieces: Response; final: Response } {
  const parsed = events.map(({ data }) => JSON.parse(JSON.stringify(data)) as ResponseStreamEvent)
  const last = parsed.pop()
  let pieces: Response | undefined
  for (const event of parsed) pieces = accumulateResponse(event, pieces)
  if (!pieces || !last) throw new Error('the stream has no events')
  const final = accumulateResponse(last, structuredClone(pieces))
  return { pieces, final }
}

function readBack(output: Response['output']): readonly Message[] {
  const input = JSON.parse(JSON.stringify(output)) as JsonObject[]
  return responsesServer.read({ model: 'm', input }).messages
}

const textReply: BackendReply = { message: { role: 'assistant', content: 'Hello' }, finishReason: 'stop', usage }

describe('the events of a stream', () => {
  test('open and close all items in order, and are numbered', () => {
    const message: AssistantMessage = {
      role: 'assistant',
      content: 'Hello',
      reasoning_content: 'Hm.',
      refusal: 'No.',
      tool_calls: [
        { id: 'c1', type: 'function', function: { name: 'add', arguments: '{"a":1}' } },
        { id: 'c2', type: 'function', function: { name: 'now', arguments: '' } },
      ],
    }
    const events = streamed(
      begin(),
      [
        { kind: 'content', text: '' },
        { kind: 'reasoning', text: 'H' },
        { kind: 'reasoning', text: 'm.' },
        { kind: 'content', text: 'Hello' },
        { kind: 'refusal', text: 'No.' },
        { kind: 'tool-call', index: 0, id: 'c1', name: 'add' },
        { kind: 'arguments', index: 0, text: '{"a":' },
        { kind: 'arguments', index: 0, text: '1}' },
        { kind: 'tool-call', index: 1, id: 'c2', name: 'now' },
      ],
      { message, finishReason: 'tool_calls', usage },
    )
    expect(events.map(({ name }) => name)).toEqual([
      'response.created',
      'response.in_progress',
      'response.output_item.added',
      'response.reasoning_summary_part.added',
      'response.reasoning_summary_text.delta',
      'response.reasoning_summary_text.delta',
      'response.reasoning_summary_text.done',
      'response.reasoning_summary_part.done',
      'response.output_item.done',
      'response.output_item.added',
      'response.content_part.added',
      'response.output_text.delta',
      'response.output_text.done',
      'response.content_part.done',
      'response.content_part.added',
      'response.refusal.delta',
      'response.refusal.done',
      'response.content_part.done',
      'response.output_item.done',
      'response.output_item.added',
      'response.function_call_arguments.delta',
      'response.function_call_arguments.delta',
      'response.function_call_arguments.done',
      'response.output_item.done',
      'response.output_item.added',
      'response.function_call_arguments.done',
      'response.output_item.done',
      'response.completed',
    ])
    expect(events.map(({ data }) => (data === '[DONE]' ? data : data['sequence_number']))).toEqual([...events.keys()])
  })

  test('are sent at once: a delta leaves when it arrives', () => {
    const writer = responsesServer.stream(begin())
    writer.start()
    writer.delta({ kind: 'content', text: 'Hel' })
    expect(writer.delta({ kind: 'content', text: 'lo' })).toMatchObject([
      { name: 'response.output_text.delta', data: { output_index: 0, content_index: 0, delta: 'lo' } },
    ])
  })

  test('begin with a response that is in progress', () => {
    const [created] = responsesServer.stream(begin({ metadata: { a: 'b' } })).start()
    expect(created?.data).toMatchObject({
      response: { status: 'in_progress', output: [], usage: null, metadata: { a: 'b' } },
    })
  })

  test.each([
    ['stop', 'response.completed', 'completed'],
    ['length', 'response.incomplete', 'incomplete'],
    ['content_filter', 'response.incomplete', 'incomplete'],
  ] as const)('end with the status of the reply: %s', (finishReason, name, status) => {
    const events = streamed(begin(), [{ kind: 'content', text: 'Hello' }], { ...textReply, finishReason })
    expect(events.at(-1)).toMatchObject({ name, data: { response: { status, output: [{ status }] } } })
    expect(events.at(-2)).toMatchObject({ name: 'response.output_item.done', data: { item: { status } } })
  })

  test('mark only the last item as incomplete, though earlier calls were not closed', () => {
    const calls = [0, 1].map((index) => ({ kind: 'tool-call', index, id: `c${index}`, name: 'now' }) as const)
    const { final } = understood(streamed(begin(), calls, { ...textReply, finishReason: 'length' }))
    expect(final.output).toMatchObject([{ status: 'completed' }, { status: 'incomplete' }])
  })

  test('carry reasoning in encoded form as well, if requested', () => {
    const head = begin({ include: ['reasoning.encrypted_content'] })
    const { final } = understood(streamed(head, [{ kind: 'reasoning', text: 'Hm.' }], textReply))
    expect(final.output[0]).toMatchObject({ type: 'reasoning', encrypted_content: expect.any(String) as string })
  })

  test('end with an error if a backend continues arguments that were complete', () => {
    const writer = responsesServer.stream(begin())
    const call = (index: number): ReplyDelta => ({ kind: 'tool-call', index, id: `call_${index}`, name: 'f' })
    for (const delta of [call(0), { kind: 'arguments', index: 0, text: '{}' } as const, call(1)]) writer.delta(delta)
    expect(writer.delta({ kind: 'arguments', index: 0, text: ' \n' })).toEqual([])
    expect(() => writer.delta({ kind: 'arguments', index: 0, text: '{"a":1}' })).toThrow('[model_malformed]')
  })

  test('hold a message for an empty reply', () => {
    const empty: BackendReply = { message: { role: 'assistant', content: '' }, finishReason: 'stop', usage }
    const { final } = understood(streamed(begin(), [], empty))
    expect(readBack(final.output)).toEqual([empty.message])
  })
})

describe('a reply cut into random deltas', () => {
  test('gives pieces that equal the whole reply and are read back as its message', () => {
    for (const seed of seeds) {
      const conversation = new RandomConversation(seed)
      const reply = conversation.reply()
      const head = begin(seed % 2 === 0 ? { include: ['reasoning.encrypted_content'] } : {})
      const whole = responsesServer.whole(head, reply)
      const { pieces, final } = understood(streamed(head, conversation.deltas(reply.message), reply))
      expect(final, `seed ${seed}`).toMatchObject(JSON.parse(JSON.stringify(whole)) as object)
      expect(pieces.output, `seed ${seed}`).toEqual(final.output)
      expect(JSON.stringify(readBack(final.output)), `seed ${seed}`).toBe(JSON.stringify([reply.message]))
    }
  })

  test('gives the whole reply even if items alternate and calls are interleaved', () => {
    for (const seed of seeds) {
      const conversation = new RandomConversation(seed)
      const reply = conversation.reply()
      const deltas = shuffled(conversation.deltas(reply.message), seed)
      const { pieces, final } = understood(streamed(begin(), deltas, reply))
      expect(pieces.output, `seed ${seed}`).toEqual(final.output)
      const [message, ...more] = readBack(final.output) as AssistantMessage[]
      expect(more).toEqual([])
      // Calls come back in the order in which they began.
      const calls = message?.tool_calls?.toSorted((one, other) => (one.id < other.id ? -1 : 1))
      expect({ ...message, ...(calls && { tool_calls: calls }) }, `seed ${seed}`).toEqual({
        ...reply.message,
        ...(calls && { tool_calls: reply.message.tool_calls?.toSorted((one, other) => (one.id < other.id ? -1 : 1)) }),
      })
    }
  })
})

/** Mixes the kinds, but keeps the order within each, and every call before its arguments. */
function shuffled(deltas: readonly ReplyDelta[], seed: number): ReplyDelta[] {
  const random = seededRandom(seed)
  const queues = new Map<string, ReplyDelta[]>()
  for (const delta of deltas) {
    const key = 'index' in delta ? `call ${delta.index}` : delta.kind
    const queue = queues.get(key)
    if (queue) queue.push(delta)
    else queues.set(key, [delta])
  }
  const mixed: ReplyDelta[] = []
  while (queues.size > 0) {
    const keys = [...queues.keys()]
    const key = keys[Math.floor(random() * keys.length)] ?? ''
    const queue = queues.get(key)
    const next = queue?.shift()
    if (next) mixed.push(next)
    else queues.delete(key)
  }
  return mixed
}
