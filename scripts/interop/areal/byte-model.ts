/**
 * A mock model whose tokens are bytes: SGLang's `/generate` for AReaL's data proxies, and Chat Completions for Millrace. The reply
 * depends on the prompt alone, so that both get the same. `node byte-model.ts <port> <delayMs>`; ends on SIGTERM.
 */
import { createServer, type ServerResponse } from 'node:http'
import { text } from 'node:stream/consumers'
import { setTimeout as wait } from 'node:timers/promises'

const special = ['<|endoftext|>', '<|im_start|>', '<|im_end|>'] as const
const firstSpecial = 256
const endOfTurn = firstSpecial + special.indexOf('<|im_end|>')
const words = ['river', 'stone', 'wheel', 'grain', 'flour', 'water', 'mill', 'race']
const replyBytes = 64
const tokensPerChunk = 16

interface Sample {
  readonly promptIds: readonly number[]
  readonly ids: readonly number[]
  readonly logprobs: readonly number[]
}

interface ChatRequest {
  readonly model?: string
  readonly messages: readonly { readonly role: string; readonly content: string }[]
  readonly stream?: boolean
  readonly stream_options?: { readonly include_usage?: boolean }
}

function encoded(prompt: string): number[] {
  return prompt.split(/(<\|(?:endoftext|im_start|im_end)\|>)/).flatMap((part) => {
    const found = special.findIndex((each) => each === part)
    return found === -1 ? Array.from(Buffer.from(part)) : [firstSpecial + found]
  })
}

function decoded(ids: readonly number[]): string {
  return Buffer.from(ids.filter((id) => id < firstSpecial)).toString()
}

function sample(promptIds: readonly number[]): Sample {
  const seed = promptIds.reduce((hash, id) => Math.imul(hash ^ (id + 1), 16_777_619), 2_166_136_261) >>> 0
  let reply = ''
  for (let index = 0; reply.length < replyBytes; index += 1) reply += `${words[(seed >>> (index % 24)) & 7]} `
  const ids = [...Buffer.from(reply.slice(0, replyBytes)), endOfTurn]
  const logprobs = ids.map((_, index) => -(((seed >>> (index % 20)) & 1023) + 1) / 1024)
  return { promptIds, ids, logprobs }
}

function generated({ promptIds, ids, logprobs }: Sample): object {
  return {
    text: decoded(ids),
    output_ids: ids,
    meta_info: {
      id: 'generated',
      finish_reason: { type: 'stop', matched: endOfTurn },
      prompt_tokens: promptIds.length,
      completion_tokens: ids.length,
      output_token_logprobs: ids.map((id, index) => [logprobs[index], id, null]),
    },
  }
}

let replies = 0

function head(model = 'bytes'): object {
  replies += 1
  return { id: `chatcmpl-${replies}`, created: Math.floor(Date.now() / 1000), model }
}

function usageOf({ promptIds, ids }: Sample): object {
  return {
    prompt_tokens: promptIds.length,
    completion_tokens: ids.length,
    total_tokens: promptIds.length + ids.length,
  }
}

function tokenFields({ ids, logprobs }: Sample, from: number, to: number): object {
  const content = ids.slice(from, to).map((id, index) => {
    return { token: `token_id:${id}`, logprob: logprobs[from + index], bytes: null, top_logprobs: [] }
  })
  return { token_ids: ids.slice(from, to), logprobs: { content } }
}

function completion(request: ChatRequest, sampled: Sample): object {
  const message = { role: 'assistant', content: decoded(sampled.ids), refusal: null }
  const tokens = tokenFields(sampled, 0, sampled.ids.length)
  const choice = { index: 0, message, finish_reason: 'stop', ...tokens }
  const fields = { choices: [choice], prompt_token_ids: sampled.promptIds, usage: usageOf(sampled) }
  return { ...head(request.model), object: 'chat.completion', ...fields }
}

function stream(response: ServerResponse, request: ChatRequest, sampled: Sample): void {
  const common = { ...head(request.model), object: 'chat.completion.chunk' }
  const send = (fields: object): void => void response.write(`data: ${JSON.stringify({ ...common, ...fields })}\n\n`)
  const choice = (delta: object, reason: string | null, tokens: object = {}): object => {
    return { choices: [{ index: 0, delta, finish_reason: reason, ...tokens }] }
  }
  response.writeHead(200, { 'content-type': 'text/event-stream' })
  send({ ...choice({ role: 'assistant', content: '' }, null), prompt_token_ids: sampled.promptIds })
  for (let from = 0; from < sampled.ids.length; from += tokensPerChunk) {
    const to = Math.min(from + tokensPerChunk, sampled.ids.length)
    send(choice({ content: decoded(sampled.ids.slice(from, to)) }, null, tokenFields(sampled, from, to)))
  }
  send(choice({}, 'stop'))
  if (request.stream_options?.include_usage) send({ choices: [], usage: usageOf(sampled) })
  response.end('data: [DONE]\n\n')
}

function sendJson(response: ServerResponse, body: object, status = 200): void {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body))
}

async function answer(path: string, body: string, response: ServerResponse): Promise<void> {
  if (path === '/v1/chat/completions') {
    const request = JSON.parse(body) as ChatRequest
    const turns = request.messages.map(({ role, content }) => `<|im_start|>${role}\n${content}<|im_end|>\n`)
    const sampled = sample(encoded(`${turns.join('')}<|im_start|>assistant\n`))
    await wait(delayMs)
    if (request.stream) stream(response, request, sampled)
    else sendJson(response, completion(request, sampled))
  } else if (path === '/generate') {
    const { input_ids: promptIds } = JSON.parse(body) as { readonly input_ids: readonly number[] }
    await wait(delayMs)
    sendJson(response, generated(sample(promptIds)))
  } else if (path === '/v1/models') sendJson(response, { object: 'list', data: [{ id: 'bytes', object: 'model' }] })
  else sendJson(response, {}, path === '/health' ? 200 : 404)
}

const [port = 0, delayMs = 0] = process.argv.slice(2).map(Number)
const server = createServer((request, response) => {
  // A gateway asks for routes and fields that only other engines have.
  const refuse = (error: unknown): void => sendJson(response, { error: { message: String(error) } }, 400)
  text(request)
    .then((body) => answer(request.url ?? '', body, response))
    .catch(refuse)
})
server.keepAliveTimeout = 60_000
server.listen({ port, host: '127.0.0.1', backlog: 4096 })
