/**
 * A mock model, a process of its own: Chat Completions and Responses over one rule, for as little CPU as possible. A request with
 * tools whose last message is the user's is answered with a call of the first tool, any other with the result of the last call.
 * The argument is the first number that the user wrote, digit for digit, or what the user wrote. If the user wrote calls, each on
 * a line (`call add {"count":1}`), these are made one after the other, word for word. Prints its URL; ends on SIGTERM.
 *
 * `POST /control` with `{ "delayMs": 10 }` sets how long a reply takes. `GET /control` tells how many requests there were, and how
 * many clients left before their reply.
 */
import { type AddressInfo, createServer, type Socket } from 'node:net'
import { type HttpFrame, HttpFrames } from './http-frames.ts'

export interface MockModel {
  /** With `/v1`. */
  readonly url: string
  readonly controlUrl: string
}

export interface MockCounts {
  readonly requests: number
  readonly open: number
  readonly abandoned: number
}

interface AskedTool {
  readonly name: string
  readonly parameters: { readonly properties?: Readonly<Record<string, { readonly type?: string }>> }
}

/** What Chat and Responses have in common. */
interface Asked {
  readonly user: string
  readonly tools: readonly AskedTool[]
  /** The result of the last call, if nothing was said after it. */
  readonly result: string | undefined
  /** How many calls have a result. */
  readonly results: number
}

interface ChatBody {
  readonly messages: readonly { readonly role: string; readonly content: unknown }[]
  readonly tools?: readonly { readonly function: AskedTool }[]
}

interface ResponsesBody {
  readonly input:
    | string
    | readonly {
        readonly type?: string
        readonly role?: string
        readonly content?: unknown
        readonly output?: string
      }[]
  readonly tools?: readonly AskedTool[]
}

interface Answer {
  readonly text?: string
  readonly call?: { readonly name: string; readonly arguments: string }
}

const usage = { input: 40, output: 8 }
let delayMs = 0
let requests = 0
let open = 0
let abandoned = 0
let replies = 0

const server = createServer({ noDelay: true }, (socket) => {
  const frames = new HttpFrames()
  socket.on('data', (chunk) => {
    for (const frame of frames.push(chunk)) answer(frame, socket)
  })
  // A client that left.
  socket.on('error', () => {})
})
server.listen({ port: 0, host: '127.0.0.1', backlog: 4_096 }, () => {
  const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  const urls: MockModel = { url: `${origin}/v1`, controlUrl: `${origin}/control` }
  console.log(JSON.stringify(urls))
})
process.once('SIGTERM', () => process.exit(0))

function answer({ head, body }: HttpFrame, socket: Socket): void {
  const [method, path = ''] = head.split(' ', 2)
  if (method === 'GET') {
    const counts: MockCounts = { requests, open, abandoned }
    send(socket, path === '/control' ? counts : { object: 'list', data: [{ id: 'mock', object: 'model' }] })
    return
  }
  if (path === '/control') {
    delayMs = (JSON.parse(body) as { delayMs: number }).delayMs
    send(socket, {})
    return
  }
  const reply = path.endsWith('/responses') ? responsesReply(body) : chatReply(body)
  requests += 1
  if (delayMs > 0) sendLater(socket, reply)
  else send(socket, reply)
}

function sendLater(socket: Socket, reply: unknown): void {
  open += 1
  const timer = setTimeout(() => {
    open -= 1
    socket.off('close', onClose)
    send(socket, reply)
  }, delayMs)
  const onClose = (): void => {
    open -= 1
    abandoned += 1
    clearTimeout(timer)
  }
  socket.once('close', onClose)
}

function send(socket: Socket, value: unknown): void {
  const body = JSON.stringify(value)
  const head = `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n`
  socket.write(head + body)
}

const writtenCall = /^call (\S+) (.*)$/gm

function decide({ user, tools, result, results }: Asked): Answer {
  const [, name, args] = user.startsWith('call ') ? ([...user.matchAll(writtenCall)][results] ?? []) : []
  if (name !== undefined && args !== undefined) return { call: { name, arguments: args } }
  if (result !== undefined) return { text: `Answer: ${result}` }
  const [tool] = tools
  if (!tool) return { text: 'Answer: 0' }
  const [[parameter, { type }] = ['', {}]] = Object.entries(tool.parameters.properties ?? {})
  const value = type === 'string' ? JSON.stringify(user) : (/-?\d+/.exec(user)?.[0] ?? '1')
  return { call: { name: tool.name, arguments: parameter === '' ? '{}' : `{${JSON.stringify(parameter)}:${value}}` } }
}

function chatReply(body: string): unknown {
  // A gateway that asks what a server can do sends no messages.
  const { messages = [], tools = [] } = JSON.parse(body) as Partial<ChatBody>
  const last = messages.at(-1)
  const { text, call } = decide({
    user: contentText(messages.findLast(({ role }) => role === 'user')?.content),
    tools: tools.map((tool) => tool.function),
    result: last?.role === 'tool' ? contentText(last.content) : undefined,
    results: messages.filter(({ role }) => role === 'tool').length,
  })
  replies += 1
  const calls = call && [{ id: `call_${replies}`, type: 'function', function: call }]
  return {
    id: `chatcmpl-${replies}`,
    object: 'chat.completion',
    created: 1_790_000_000,
    model: 'mock',
    choices: [
      {
        index: 0,
        message: { role: 'assistant', content: text ?? null, ...(calls && { tool_calls: calls }) },
        finish_reason: calls ? 'tool_calls' : 'stop',
      },
    ],
    usage: { prompt_tokens: usage.input, completion_tokens: usage.output, total_tokens: usage.input + usage.output },
  }
}

function responsesReply(body: string): unknown {
  const { input = [], tools = [] } = JSON.parse(body) as Partial<ResponsesBody>
  const items = typeof input === 'string' ? [{ role: 'user', content: input }] : input
  const last = items.at(-1)
  const { text, call } = decide({
    user: contentText(items.findLast(({ role }) => role === 'user')?.content),
    tools,
    result: last && 'output' in last ? last.output : undefined,
    results: items.filter((item) => 'output' in item).length,
  })
  replies += 1
  const part = { type: 'output_text', text, annotations: [] }
  const item = call
    ? { id: `fc_${replies}`, type: 'function_call', status: 'completed', call_id: `call_${replies}`, ...call }
    : { id: `msg_${replies}`, type: 'message', role: 'assistant', status: 'completed', content: [part] }
  return {
    id: `resp_${replies}`,
    object: 'response',
    created_at: 1_790_000_000,
    model: 'mock',
    status: 'completed',
    output: [item],
    parallel_tool_calls: true,
    tool_choice: 'auto',
    tools,
    usage: {
      input_tokens: usage.input,
      input_tokens_details: { cached_tokens: 0 },
      output_tokens: usage.output,
      output_tokens_details: { reasoning_tokens: 0 },
      total_tokens: usage.input + usage.output,
    },
  }
}

function contentText(content: unknown): string {
  if (typeof content === 'string') return content
  if (!Array.isArray(content)) return ''
  return content.map((part: { readonly text?: string }) => part.text ?? '').join('')
}
