import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import {
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type Server,
  type ServerResponse,
} from 'node:http'
import type { AddressInfo } from 'node:net'
import {
  chatServer,
  messagesServer,
  newReplyId,
  readWhole,
  responsesServer,
  type ServerDialect,
} from '../apis/index.ts'
import type { AgentContext } from '../env/index.ts'
import { MillraceError } from '../errors/index.ts'
import { keepAliveMs } from '../http/index.ts'
import { apiPaths, type AssistantMessage } from '../schema/index.ts'
import { Heartbeat, sendError, sendReply } from './client-reply.ts'
import { Conversations } from './conversations.ts'
import { HttpReply } from './http-reply.ts'
import { parsedMembers, readBody } from './request-body.ts'

export interface ModelEndpointOptions {
  /** Models of the run by the names that the program has for them. Any other name is the rollout's model. */
  readonly models?: Readonly<Record<string, string>>
}

/** Where a program reaches the models of one rollout: OpenAI's Chat and Responses below `url`, Anthropic's Messages below `root`. */
export interface ModelEndpoint extends AsyncDisposable {
  readonly root: string
  readonly url: string
  readonly key: string
  /**
   * The last reply of the rollout's own conversation, or of a later one with its model and its tools, in which the program went on
   * with a history that it wrote anew. Undefined if the program has not opened the rollout's conversation, or got no reply.
   */
  readonly reply: AssistantMessage | undefined
  /** Why the program's last request got no reply; undefined if it got one. */
  readonly lastError: MillraceError | undefined
  /** Rejects when the rollout cannot go on, whatever the program does. */
  readonly fatal: Promise<never>
}

/**
 * Lets a program on this machine ask the models of a rollout. What it says is recorded as the rollout's conversations, and counts
 * toward its budget. Closing it forgets the key, and waits until everything is recorded.
 */
export async function openModelEndpoint(
  context: AgentContext,
  { models = {} }: ModelEndpointOptions = {},
): Promise<ModelEndpoint> {
  const conversations = new Conversations(context, models)
  const key = `mr-${randomBytes(32).toString('base64url')}`
  const root = await server.add(key, conversations)
  return {
    root,
    url: `${root}/v1`,
    key,
    fatal: conversations.fatal,
    get reply() {
      return conversations.reply
    },
    get lastError() {
      return conversations.lastError
    },
    async [Symbol.asyncDispose]() {
      await Promise.all([conversations[Symbol.asyncDispose](), server.remove(key)])
    },
  }
}

const dialects = new Map<string, ServerDialect>([
  [apiPaths.chat, chatServer],
  [apiPaths.responses, responsesServer],
  [apiPaths.messages, messagesServer],
])

const limits = { maxStallMs: 120_000, beatMs: 15_000 }

/** One server for all rollouts of this thread. It is there for as long as a rollout needs it. */
class ModelServer {
  readonly #rollouts = new Map<string, Conversations>()
  #server: Promise<Server> | undefined

  async add(key: string, conversations: Conversations): Promise<string> {
    this.#rollouts.set(key, conversations)
    try {
      const { port } = (await (this.#server ??= this.#listen())).address() as AddressInfo
      return `http://127.0.0.1:${port}`
    } catch (error) {
      await this.remove(key)
      throw new MillraceError('agent_failed', 'no port for programs could be opened on 127.0.0.1', { cause: error })
    }
  }

  async remove(key: string): Promise<void> {
    if (!this.#rollouts.delete(key) || this.#rollouts.size > 0) return
    const closing = this.#server
    this.#server = undefined
    const server = await closing?.catch(() => undefined)
    if (!server) return
    const closed = once(server, 'close')
    server.close()
    server.closeAllConnections()
    await closed
  }

  async #listen(): Promise<Server> {
    const server = createServer(
      { keepAliveTimeout: keepAliveMs },
      (request, response) => void this.#handle(request, response),
    )
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    return server
  }

  async #handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    // `//`, for one, is no address at all: there is nothing at such a path.
    const pathname = URL.parse(request.url ?? '/', 'http://localhost')?.pathname ?? '/'
    const path = pathname.replace(/^\/v1(?=\/)/, '')
    const dialect = dialects.get(path) ?? (path.startsWith(apiPaths.messages) ? messagesServer : chatServer)
    const requestId = randomBytes(12).toString('hex')
    const reply = new HttpReply(response, { api: dialect.api, requestId, maxStallMs: limits.maxStallMs })
    const conversations = this.#rollouts.get(keyIn(request.headers) ?? '')
    try {
      if (!conversations) throw unknownKey()
      if (request.method === 'GET' && path === '/models') return sendModels(reply, conversations)
      if (request.method !== 'POST' || !dialects.has(path)) throw noSuchPath(request.method, pathname)
      await exchange(reply, { dialect, conversations, body: await readBody(request) })
    } catch (thrown) {
      const error = MillraceError.from(thrown, 'internal')
      if (isModelCall(request.method, path) && !reply.isGone) conversations?.noteRefused(error)
      sendError(reply, dialect, error)
    } finally {
      // The body of a request that was refused: the connection can be used again.
      request.resume()
    }
  }
}

const server = new ModelServer()

interface Exchange {
  readonly dialect: ServerDialect
  readonly conversations: Conversations
  readonly body: Buffer
}

async function exchange(reply: HttpReply, { dialect, conversations, body }: Exchange): Promise<void> {
  // Read for translation, whatever the model's API is: the rollout asks it in our own shape.
  const request = readWhole(dialect, parsedMembers(dialect.api, body.toString()), { backendApi: 'ids' })
  const refused = request.unsupported.filter((name) => name !== 'logprobs')
  const [param] = (request.choices ?? 1) > 1 ? ['n'] : refused
  if (param !== undefined) {
    const message = `a rollout's model cannot be asked with: ${refused.join(', ') || param}. Leave it out.`
    throw new MillraceError('model_rejected', message, { data: { status: 400, param } })
  }
  const head = {
    id: newReplyId(dialect.api),
    model: request.model,
    createdAt: Math.floor(Date.now() / 1000),
    request: { ...request, wantsLogprobs: false, wantsTokenIds: false },
  }
  const heartbeat = request.stream ? new Heartbeat(reply, limits.beatMs, () => false) : undefined
  try {
    const { message, finishReason, usage } = await conversations.answer({ request, body })
    sendReply(reply, dialect, head, { message, finishReason, usage })
  } catch (thrown) {
    const error = MillraceError.from(thrown, 'internal')
    sendError(reply, dialect, error, heartbeat?.isPromised ? 'in-stream' : 'instead')
  } finally {
    heartbeat?.stop()
  }
}

/** Each model as both vendors' clients expect it. */
function sendModels(reply: HttpReply, { modelNames }: Conversations): void {
  const data = modelNames.map((id) => ({
    id,
    object: 'model',
    type: 'model',
    display_name: id,
    created: 0,
    created_at: '1970-01-01T00:00:00Z',
    owned_by: 'millrace',
  }))
  const ends = { first_id: modelNames[0], last_id: modelNames.at(-1) }
  reply.whole(200, {}, JSON.stringify({ object: 'list', data, has_more: false, ...ends }))
}

function keyIn({ authorization, 'x-api-key': apiKey }: IncomingHttpHeaders): string | undefined {
  const [, bearer] = /^Bearer (.+)$/i.exec(authorization ?? '') ?? []
  return bearer ?? (typeof apiKey === 'string' ? apiKey : undefined)
}

/**
 * Whether the program wants a model's reply, from our routes or from addresses that resemble them: `/completions`, or `/v1/v1/messages`
 * of a wrong base URL. A program that probes for a list of models or a count of tokens works without them.
 */
function isModelCall(method: string | undefined, path: string): boolean {
  return method === 'POST' && /\/(completions|responses|messages)\/?$/.test(path)
}

function unknownKey(): MillraceError {
  const message =
    'the key is not that of a running rollout: send the one in OPENAI_API_KEY, ANTHROPIC_AUTH_TOKEN or MILLRACE_KEY'
  return new MillraceError('usage', message, { data: { status: 401 } })
}

function noSuchPath(method: string | undefined, path: string): MillraceError {
  const paths = ['/v1/models', ...Object.values(apiPaths).map((each) => `/v1${each}`)].join(', ')
  return new MillraceError('usage', `there is no ${method} ${path} here; there are ${paths}`, { data: { status: 404 } })
}
