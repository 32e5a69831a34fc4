/**
 * The backend process: chat completions that are ready before they are asked for. A reply is always the same 64 tokens; whoever
 * asks for token fields gets them as vLLM writes them. A prompt's ids are those of the prompt and the reply of the turn before it,
 * and more for the question, as a chat template makes them. A stream is 200 events, each in a write of its own: in every tick of a
 * millisecond each of the next eight streams in turn gets one.
 */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { microsecondsNow, replyText, stampDigits, stampMark, streamEvents } from './conversation.ts'

const tokenCount = 64
/** Of half a kilobyte of text, with what the template puts around it. */
const questionTokens = 128
const tickMs = 1
const streamsPerTick = 8

const ids = Array.from({ length: tokenCount }, (_, index) => (index * 7919) % 151_936)
const assistantMark = '"role":"assistant"'
const wholePlain = Buffer.from(wholeReply(''))
const wholeWithTokens: Buffer[] = []
const eventsPlain = eventTemplates(false)
const eventsWithTokens = eventTemplates(true)
const models = JSON.stringify({
  object: 'list',
  data: [{ id: 'bench', object: 'model', created: 1, owned_by: 'vllm', max_model_len: 131_072 }],
})

/** An event, but for the time that is written into it when it is sent. */
interface EventTemplate {
  readonly bytes: Buffer
  readonly stampAt: number
}

interface PacedStream {
  readonly response: ServerResponse
  readonly events: readonly EventTemplate[]
  sent: number
}

let streams: PacedStream[] = []
let nextStream = 0

const server = createServer((request, response) => {
  if (request.method === 'GET') {
    answer(response, request.url === '/v1/models' ? 200 : 404, models)
    return
  }
  const parts: Buffer[] = []
  request.on('data', (part: Buffer) => parts.push(part))
  request.on('end', () => reply(request, response, Buffer.concat(parts)))
})
server.keepAliveTimeout = 60_000
server.listen(0, '127.0.0.1', 4_096, () => {
  console.log(JSON.stringify(`http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`))
})
process.once('SIGTERM', () => process.exit(0))

function reply(request: IncomingMessage, response: ServerResponse, body: Buffer): void {
  if (request.url !== '/v1/chat/completions') return answer(response, 404, '{}')
  if (!body.includes('"messages"')) return answer(response, 400, '{"error":{"message":"messages are missing"}}')
  const wantsTokens = body.includes('"return_token_ids":true')
  if (!body.includes('"stream":true')) return answer(response, 200, wantsTokens ? withTokens(body) : wholePlain)
  response.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8' })
  response.flushHeaders()
  streams.push({ response, events: wantsTokens ? eventsWithTokens : eventsPlain, sent: 0 })
  if (streams.length === 1) setTimeout(onTick, tickMs)
}

function answer(response: ServerResponse, status: number, body: string | Buffer): void {
  response.writeHead(status, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) })
  response.end(body)
}

function onTick(): void {
  const due = Math.min(streams.length, streamsPerTick)
  for (let turn = 0; turn < due; turn += 1) {
    if (nextStream >= streams.length) nextStream = 0
    advance(streams[nextStream] as PacedStream)
    nextStream += 1
  }
  streams = streams.filter(({ response }) => !response.writableEnded && !response.destroyed)
  if (streams.length > 0) setTimeout(onTick, tickMs)
}

function advance(stream: PacedStream): void {
  const { response, events } = stream
  const { bytes, stampAt } = events[stream.sent] as EventTemplate
  const event = Buffer.from(bytes)
  event.write(String(microsecondsNow()).padStart(stampDigits, '0'), stampAt, 'latin1')
  response.write(event)
  stream.sent += 1
  if (stream.sent === events.length) response.end()
}

function withTokens(body: Buffer): Buffer {
  const turn = turnOf(body)
  wholeWithTokens[turn] ??= Buffer.from(wholeReply(`"prompt_token_ids":[${promptIds(turn).join(',')}],`))
  return wholeWithTokens[turn]
}

function turnOf(body: Buffer): number {
  let turn = 1
  for (let at = body.indexOf(assistantMark); at !== -1; at = body.indexOf(assistantMark, at + 1)) turn += 1
  return turn
}

function promptIds(turn: number): number[] {
  const question = Array.from({ length: questionTokens }, (_, index) => (turn * 104_729 + index * 31_337) % 151_936)
  return turn === 1 ? question : [...promptIds(turn - 1), ...ids, ...question]
}

function logprobText(index: number): string {
  return `{"token":"token${index}","logprob":${-(index % 9973) / 7919},"bytes":null,"top_logprobs":[]}`
}

/** Without the text of prompt ids, it has no token fields. */
function wholeReply(promptField: string): string {
  const logprobs = promptField === '' ? 'null' : `{"content":[${ids.map((_, index) => logprobText(index)).join(',')}]}`
  return [
    '{"id":"chatcmpl-bench","object":"chat.completion","created":1763200000,"model":"bench",',
    promptField,
    `"choices":[{"index":0,"message":{"role":"assistant","content":${JSON.stringify(replyText)},"tool_calls":[]},`,
    `"logprobs":${logprobs},"finish_reason":"stop","stop_reason":null${promptField === '' ? '' : `,"token_ids":[${ids.join(',')}]`}}],`,
    `"usage":{"prompt_tokens":128,"total_tokens":${128 + tokenCount},"completion_tokens":${tokenCount}}}`,
  ].join('')
}

/** One token in each, and in the last the finish, usage for those who asked for tokens, and the mark of the end. */
function eventTemplates(hasTokens: boolean): EventTemplate[] {
  const head = '{"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1763200000,"model":"bench"'
  const usage = `"usage":{"prompt_tokens":128,"total_tokens":${128 + streamEvents},"completion_tokens":${streamEvents}}`
  const end = `${hasTokens ? `data: ${head},"choices":[],${usage}}\n\n` : ''}data: [DONE]\n\n`
  const delta = `"delta":{"role":"assistant","content":"${stampMark}${'0'.repeat(stampDigits)} "}`
  return Array.from({ length: streamEvents }, (_, index) => {
    const isLast = index === streamEvents - 1
    const logprobs = hasTokens ? `{"content":[${logprobText(index)}]}` : 'null'
    const tokenIds = hasTokens ? `,"token_ids":[${(index * 7919) % 151_936}]` : ''
    const rest = `"logprobs":${logprobs},"finish_reason":${isLast ? '"stop"' : 'null'}${tokenIds}`
    const text = `data: ${head},"choices":[{"index":0,${delta},${rest}}]}\n\n${isLast ? end : ''}`
    return { bytes: Buffer.from(text), stampAt: text.indexOf(stampMark) + stampMark.length }
  })
}
