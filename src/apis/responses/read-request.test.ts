import { expect, test } from 'vitest'
import { MillraceError } from '../../errors/index.ts'
import { seededRandom } from '../../kit/index.ts'
import { isJsonList, type Json, type JsonObject, type Message } from '../../schema/index.ts'
import { RandomConversation } from '../../../test/support/apis/random-conversation.ts'
import { headOf } from '../../../test/support/apis/reply-server.ts'
import { responsesBody } from '../../../test/support/apis/responses-body.ts'
import { responsesServer } from './write-stream.ts'
import type { DialectRequest } from '../server-side.ts'

test('a conversation is read into its canonical messages', () => {
  for (let seed = 0; seed < 500; seed += 1) {
    const messages = new RandomConversation(seed).messages().map(withoutError)
    const request = responsesServer.read(responsesBody(messages))
    expect(JSON.stringify(request.messages), `seed ${seed}`).toBe(JSON.stringify(messages))
    expect(request.unsupported).toEqual([])
  }
})

test('a body with random faults is refused with the path, or read and replied to', () => {
  const outcomes = { read: 0, refused: 0 }
  for (let seed = 0; seed < 1500; seed += 1) {
    const conversation = new RandomConversation(seed)
    const body = new Tampering(seed).object({ ...fields, ...responsesBody(conversation.messages()) })
    const request = readOrRefused(body)
    if (!request) {
      outcomes.refused += 1
      continue
    }
    outcomes.read += 1
    const head = headOf(responsesServer, request)
    const reply = conversation.reply()
    const writer = responsesServer.stream(head)
    const events = [...writer.start(), ...conversation.deltas(reply.message).flatMap((delta) => writer.delta(delta))]
    expect(() => JSON.stringify([request, responsesServer.whole(head, reply), events, writer.end(reply)])).not.toThrow()
  }
  expect(outcomes.read).toBeGreaterThan(150)
  expect(outcomes.refused).toBeGreaterThan(150)
})

/** This API does not support a tool that failed. */
function withoutError(message: Message): Message {
  if (message.role !== 'tool') return message
  return { role: 'tool', tool_call_id: message.tool_call_id, content: message.content }
}

function readOrRefused(body: JsonObject): DialectRequest | undefined {
  try {
    return responsesServer.read(body)
  } catch (error) {
    if (!(error instanceof MillraceError)) throw error
    expect(error.code).toBe('model_rejected')
    expect(error.data).toEqual({ status: 400, param: expect.any(String) as string })
    return undefined
  }
}

const fields: JsonObject = {
  tools: [{ type: 'function', name: 'f', parameters: { type: 'object' }, strict: true }, { type: 'web_search' }],
  tool_choice: { type: 'function', name: 'f' },
  text: { format: { type: 'json_schema', name: 'n', schema: {} }, verbosity: 'low' },
  reasoning: { effort: 'low', summary: 'auto' },
  include: ['reasoning.encrypted_content'],
  temperature: 1,
  stream: true,
}

/** Replaces or leaves out a few values anywhere in a document. */
class Tampering {
  readonly #random: () => number

  constructor(seed: number) {
    this.#random = seededRandom(seed)
  }

  object(value: JsonObject): JsonObject {
    const entries = Object.entries(value).filter(() => this.#random() > 0.01)
    return Object.fromEntries(entries.map(([key, inner]) => [key, this.#tampered(inner ?? null)]))
  }

  #tampered(value: Json): Json {
    if (this.#random() < 0.015) return this.#junk()
    if (typeof value !== 'object' || value === null) return value
    return isJsonList(value) ? value.map((inner) => this.#tampered(inner)) : this.object(value)
  }

  #junk(): Json {
    const junk: Json[] = [null, true, -1, 0.5, '', 'message', [], {}, [[]], { type: 'reasoning' }, { role: 'user' }]
    return junk[Math.floor(this.#random() * junk.length)] ?? null
  }
}
