import { chatServer } from '../../../../src/apis/chat/write-reply.ts'
import { eventText } from '../../../../src/apis/index.ts'
import { messagesServer } from '../../../../src/apis/messages/write-reply.ts'
import { replyDeltas, type ReplyHead, type ServerDialect } from '../../../../src/apis/server-side.ts'
import { responsesServer } from '../../../../src/apis/responses/write-stream.ts'
import { RandomConversation } from '../../apis/random-conversation.ts'
import { MillraceError } from '../../../../src/errors/index.ts'
import type { ApiName, Json, JsonObject } from '../../../../src/schema/index.ts'
import type { Feed } from './byte-backend.ts'
import type { Chance } from './fuzz.ts'
import { mutatedBytes, mutatedJson, pieces } from './mutations.ts'

const dialects: Readonly<Record<ApiName, ServerDialect>> = {
  chat: chatServer,
  responses: responsesServer,
  messages: messagesServer,
}

const eventStream = { 'content-type': 'text/event-stream' }
const json = { 'content-type': 'application/json' }

/** An answer that its API allows, whole or as a stream. */
export function validFeed(api: ApiName, isStream: boolean, chance: Chance): Feed {
  const bytes = isStream
    ? Buffer.from(validEvents(api, chance).join(''))
    : Buffer.from(JSON.stringify(wholeReply(api, chance)))
  return { status: 200, headers: isStream ? eventStream : json, pieces: pieces(bytes, chance), end: 'end' }
}

/** One with anything wrong with it: its values, its bytes, its order, its end. Some have nothing wrong. */
export function fuzzedFeed(api: ApiName, isStream: boolean, chance: Chance): Feed {
  if (chance.is(0.05)) return errorFeed(api, chance)
  // A server may know nothing of streams, or of anything else.
  const streams = chance.is(0.02) ? !isStream : isStream
  const bytes = streams ? fuzzedStream(api, chance) : fuzzedWhole(api, chance)
  const headers = chance.is(0.02) ? { 'content-type': 'text/html' } : streams ? eventStream : json
  // Silence costs the time it takes to notice it.
  const end = chance.is(0.002) ? 'silence' : chance.is(0.1) ? 'error' : 'end'
  return { status: 200, headers, pieces: pieces(bytes, chance), end }
}

const endMarks: Readonly<Record<ApiName, RegExp>> = {
  chat: /finish_reason/,
  responses: /response\.completed|response\.incomplete|"status"/,
  messages: /stop_reason|message_stop/,
}

/** Whether the backend can have said how its reply ended, told from its bytes alone. */
export function mayHaveEnded(api: ApiName, { status, pieces: sent }: Feed): boolean {
  return status === 200 && endMarks[api].test(Buffer.concat(sent).toString('latin1'))
}

function fuzzedStream(api: ApiName, chance: Chance): Buffer {
  const kind = chance.below(10)
  const events = validEvents(api, chance)
  if (kind === 0) return Buffer.from(events.join(''))
  if (kind < 4) return Buffer.from(reordered(events, api, chance).join(''))
  if (kind < 7) return Buffer.from(rewritten(events, chance).join(''))
  let bytes: Buffer = Buffer.from(events.join(''))
  for (let count = 1 + chance.below(3); count > 0; count -= 1) bytes = mutatedBytes(bytes, chance)
  return bytes
}

function fuzzedWhole(api: ApiName, chance: Chance): Buffer {
  const reply = wholeReply(api, chance)
  const kind = chance.below(6)
  if (kind === 0) return Buffer.from(JSON.stringify(reply))
  if (kind < 4) return Buffer.from(JSON.stringify(mutatedJson(reply, chance)))
  return mutatedBytes(Buffer.from(JSON.stringify(reply, null, chance.is(0.2) ? 2 : 0)), chance)
}

/** Not those that say that a server is overloaded: a gateway then waits, which is right and takes long. */
function errorFeed(api: ApiName, chance: Chance): Feed {
  const error = new MillraceError('model_rejected', 'this is not how it is done', { data: { status: 400 } })
  const { body } = dialects[api].error(error)
  const text = JSON.stringify(mutatedJson(body as JsonObject, chance))
  const bytes = chance.is(0.3) ? mutatedBytes(Buffer.from(text), chance) : Buffer.from(text)
  return { status: chance.pick([400, 401, 404, 418, 500, 599]), headers: json, pieces: [bytes], end: 'end' }
}

function validEvents(api: ApiName, chance: Chance): string[] {
  const dialect = dialects[api]
  const conversation = new RandomConversation(chance.below(1_000_000))
  const reply = conversation.reply()
  const writer = dialect.stream(headOf(api))
  const deltas = chance.is(0.5) ? conversation.deltas(reply.message) : replyDeltas(reply.message)
  const events = [...writer.start(), ...deltas.flatMap((delta) => writer.delta(delta)), ...writer.end(reply)]
  if (api === 'chat') for (const { data } of events) if (data !== '[DONE]') addTokens(data, chance)
  return events.map(eventText)
}

function wholeReply(api: ApiName, chance: Chance): JsonObject {
  const reply = new RandomConversation(chance.below(1_000_000)).reply()
  const document = dialects[api].whole(headOf(api), reply)
  if (api === 'chat') addTokens(document, chance)
  return JSON.parse(JSON.stringify(document)) as JsonObject
}

/** As vLLM says what it sampled. */
function addTokens(document: Record<string, unknown>, chance: Chance): void {
  const { choices } = document as { choices?: readonly Record<string, unknown>[] }
  const choice = choices?.[0]
  if (!choice) return
  const ids = Array.from({ length: chance.below(4) }, () => chance.below(100_000))
  choice['token_ids'] = ids
  choice['logprobs'] = {
    content: ids.map(() => ({ token: 'x', logprob: -chance.next(), bytes: null, top_logprobs: [] })),
  }
  if (chance.is(0.3)) document['prompt_token_ids'] = Array.from({ length: chance.below(2000) }, (_, index) => index)
  document['metadata'] = { weight_version: String(chance.below(3)) }
}

function headOf(api: ApiName): ReplyHead {
  const body = { model: 'm', stream: true }
  const request = {
    model: 'm',
    messages: [],
    tools: [],
    sampling: {},
    stream: true,
    includeUsage: true,
    wantsTokenIds: false,
    wantsLogprobs: false,
    unsupported: [],
    body,
  }
  return { id: `reply-${api}`, model: 'm', createdAt: 1_700_000_000, request }
}

/** Events left out, doubled, swapped or cut off, and some that have no business there. */
function reordered(events: readonly string[], api: ApiName, chance: Chance): string[] {
  const changed = [...events]
  for (let count = 1 + chance.below(3); count > 0; count -= 1) {
    const at = chance.below(changed.length)
    switch (chance.below(6)) {
      case 0:
        changed.splice(at, 1)
        break
      case 1:
        changed.splice(at, 0, changed[at] ?? '')
        break
      case 2:
        changed.splice(chance.below(changed.length), 0, ...changed.splice(at, 1))
        break
      case 3:
        changed.length = at
        break
      case 4:
        changed.splice(at, 0, unhandledEvent(api, chance))
        break
      default:
        changed.splice(
          at,
          0,
          ...validEvents(chance.pick(['chat', 'responses', 'messages'] as const), chance).slice(0, 3),
        )
    }
  }
  return changed
}

function unhandledEvent(api: ApiName, chance: Chance): string {
  const error = new MillraceError('model_server_error', 'the server failed in the middle')
  return chance.pick([
    ': a comment\n\n',
    'data: [DONE]\n\n',
    'data:\n\n',
    'data\n\n',
    'event: ping\ndata: {"type":"ping"}\n\n',
    'data: {"type":"line\\nbreak\\r","id":7}\n\n',
    'data: {"a":\ndata: 1}\n\n',
    'data: {"a":\r1}\n\n',
    'data: null\n\n',
    'data: []\n\n',
    'retry: 5\nid: 7\n\n',
    '\n\n\r\n',
    eventText(dialects[api].streamError(error)),
  ])
}

/** The same events with other values in some, or spread over several lines. */
function rewritten(events: readonly string[], chance: Chance): string[] {
  const chosen = chance.below(events.length)
  return events.map((event, index) => {
    if (index !== chosen && chance.is(0.9)) return event
    const at = event.indexOf('data: ') + 'data: '.length
    const written = event.slice(at).trimEnd()
    if (written === '[DONE]') return event
    const document = JSON.parse(written) as Json
    if (chance.is(0.2))
      return `${event.slice(0, at)}${JSON.stringify(document, null, 1).replaceAll('\n', '\ndata: ')}\n\n`
    return `${event.slice(0, at)}${JSON.stringify(mutatedJson(document, chance))}\n\n`
  })
}
