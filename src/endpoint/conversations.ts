import { hash } from 'node:crypto'
import { once } from 'node:events'
import type { DialectRequest } from '../apis/index.ts'
import type { AgentContext, Turn } from '../env/index.ts'
import { MillraceError } from '../errors/index.ts'
import { AbortScope } from '../kit/index.ts'
import type { AssistantMessage, Message } from '../schema/index.ts'
import { MessageKey } from './message-key.ts'

/** More than any program needs. One that makes a new conversation with each request would fill the memory. */
const maxConversations = 1_000

/** A request that was read, and its body, by which a repetition is known. */
export interface EndpointRequest {
  readonly request: DialectRequest
  readonly body: Buffer
}

/**
 * The conversations of one program. The first request for the rollout's model opens the rollout's own conversation, if nothing
 * is in it yet. A request whose messages begin with all of a conversation continues it. Any other one, of a sub-agent or with a
 * history that was written anew, begins a child.
 */
export class Conversations implements AsyncDisposable {
  readonly #context: AgentContext
  readonly #models: Readonly<Record<string, string>>
  readonly #all: Conversation[] = []
  readonly #dropped = new Set<string>()
  /** Aborts when the agent ends, or has to: a request that is still being read then comes too late, and must not change what is scored. */
  readonly #open: AbortScope
  readonly #children: Promise<unknown>[] = []
  readonly #fatal = Promise.withResolvers<never>()
  /** The rollout's own conversation, once the program has opened it. */
  #main: Conversation | undefined
  #asked = 0
  #answered: Answer | undefined
  /** Why the program's last request got no reply, in whatever conversation; undefined if it got one. */
  lastError: MillraceError | undefined

  constructor(context: AgentContext, models: Readonly<Record<string, string>>) {
    this.#context = context
    this.#models = models
    this.#open = new AbortScope(context.signal)
    // The agent may have ended before it looks.
    this.#fatal.promise.catch(() => {})
  }

  /** The names that a client may choose among. It may use any other name, too: that is the rollout's model. */
  get modelNames(): readonly string[] {
    return [this.#context.model, ...Object.keys(this.#models)]
  }

  /** Rejects when the rollout cannot go on, whatever the program does: a limit is used up, or the run is stopped. */
  get fatal(): Promise<never> {
    return this.#fatal.promise
  }

  /** The last reply of the rollout's conversation, or of one that takes its place; undefined before there is one. */
  get reply(): AssistantMessage | undefined {
    return this.#answered?.reply
  }

  async answer(asked: EndpointRequest): Promise<Turn> {
    const { signal } = this.#open
    signal.throwIfAborted()
    this.#noteDropped(asked.request)
    try {
      const turn = await this.#turn(asked)
      if (!signal.aborted) this.lastError = undefined
      return turn
    } catch (thrown) {
      const error = MillraceError.from(thrown, 'agent_failed')
      if (!signal.aborted) this.lastError = error
      if (!isForClient(error)) {
        this.#fatal.reject(error)
        this.#open.abort(error)
      }
      throw error
    }
  }

  /** No model was asked: the request is the program's fault, and the same request would be refused again. */
  noteRefused({ rawMessage, data, cause }: MillraceError): void {
    if (this.#open.signal.aborted) return
    const message = `the program's last model call was refused: ${rawMessage}`
    this.lastError = new MillraceError('agent_failed', message, { data, cause })
  }

  /** What the models are asked without: a field that changes nothing, or a tool that only the program's provider has. */
  #noteDropped({ dropped = [], hosted = [] }: DialectRequest): void {
    const known = this.#dropped.size
    for (const name of [...dropped, ...hosted]) this.#dropped.add(name)
    if (this.#dropped.size > known) this.#context.note('dropped', [...this.#dropped].toSorted())
  }

  async #turn({ request, body }: EndpointRequest): Promise<Turn> {
    const { model } = request
    const digest = hash('sha256', body, 'base64url')
    const repeated = this.#all.find((each) => each.isRepetition(digest))
    if (repeated) return await repeated.repeat()
    const order = (this.#asked += 1)
    const keys = request.messages.map(keyOf)
    const known = this.#all.filter((each) => each.model === model && each.isContinuedBy(keys))
    const longest = known.reduce<Conversation | undefined>(
      (best, each) => (best && best.length >= each.length ? best : each),
      undefined,
    )
    const conversation = longest ?? this.#begin(request, keys)
    const turn = await conversation.turn(request, { keys, digest })
    // By when it was asked for, which is the same in a replay.
    if (conversation.kind === this.#main?.kind && order > (this.#answered?.order ?? 0)) {
      this.#answered = { order, reply: turn.message }
    }
    return turn
  }

  #begin({ model, messages, tools }: DialectRequest, keys: readonly MessageKey[]): Conversation {
    if (this.#all.length >= maxConversations) {
      const message = `a rollout has at most ${maxConversations} conversations: continue one of them`
      throw new MillraceError('usage', message, { data: { status: 400 } })
    }
    const isMain = model === this.#context.model && this.#context.messages.length === 0
    const conversation: Conversation = new Conversation({
      model,
      kind: JSON.stringify([model, ...tools.map(({ function: { name } }) => name)]),
      context: isMain
        ? Promise.resolve(this.#context)
        : this.#startChild({ model, messages }, () => conversation.lastError),
      open: this.#open.signal,
    })
    if (isMain) {
      this.#context.append(...messages)
      this.#main = conversation
    }
    conversation.note(keys)
    this.#all.push(conversation)
    return conversation
  }

  /** A child that lives until the program has ended, and does what the program's requests say. */
  #startChild(
    { model: name, messages: prompt }: Pick<DialectRequest, 'model' | 'messages'>,
    lastError: () => MillraceError | undefined,
  ): Promise<AgentContext> {
    const opened = Promise.withResolvers<AgentContext>()
    const model = this.#models[name]
    const { signal } = this.#open
    const ended = this.#context.child({
      prompt,
      tools: [],
      alongside: true,
      // It is idle most of the time, and its parent's clock goes on with each turn.
      limits: { timeoutMs: Infinity },
      ...(model !== undefined && { model }),
      agent: async (own) => {
        opened.resolve(own)
        if (!signal.aborted) await once(signal, 'abort')
        const error = lastError()
        if (error) throw error
      },
    })
    this.#children.push(ended)
    // Whoever asked hears of it; a child that could not begin has no context.
    ended.then(
      ({ outcome }) => opened.reject(new MillraceError('cancelled', `the conversation has ended: ${outcome}`)),
      (thrown: unknown) => opened.reject(thrown),
    )
    return opened.promise
  }

  /** No request follows. Resolves when all that was said is recorded. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#open.abort(new MillraceError('cancelled', 'the agent has ended, so its requests are refused'))
    await Promise.allSettled(this.#children)
  }
}

/** Whether the program is told, and may try again or give up. After any other error nothing can be asked any more. */
function isForClient({ code }: MillraceError): boolean {
  return code.startsWith('model_') || code === 'context_length' || code === 'usage'
}

/** The digests of a request: of each message, and of its whole body. */
interface Said {
  readonly keys: readonly MessageKey[]
  readonly digest: string
}

interface ConversationOptions extends Pick<Conversation, 'model' | 'kind'> {
  readonly context: Promise<AgentContext>
  readonly open: AbortSignal
}

interface Answer {
  /** The number of its request. */
  readonly order: number
  readonly reply: AssistantMessage
}

interface Answered {
  readonly digest: string
  readonly turn: Promise<Turn>
}

class Conversation {
  /** The model as the program calls it. */
  readonly model: string
  /** The model and the names of the tools, by which a history that was written anew is told from a sub-agent. */
  readonly kind: string
  /** Why its last request got no reply: how a child ends. */
  lastError: MillraceError | undefined
  readonly #context: Promise<AgentContext>
  readonly #open: AbortSignal
  readonly #known: KnownMessage[] = []
  #last: Answered | undefined
  #isBusy = false

  constructor({ model, kind, context, open }: ConversationOptions) {
    this.model = model
    this.kind = kind
    this.#context = context
    this.#open = open
    context.catch(() => {})
  }

  get length(): number {
    return this.#known.length
  }

  isRepetition(digest: string): boolean {
    return this.#last?.digest === digest
  }

  async repeat(): Promise<Turn> {
    if (!this.#last) throw new MillraceError('internal', 'there is no reply to repeat')
    return await this.#last.turn
  }

  /** While a reply is under way, nothing continues the conversation: what comes meanwhile was said without knowing it. */
  isContinuedBy(keys: readonly MessageKey[]): boolean {
    if (this.#isBusy || keys.length < this.#known.length) return false
    return this.#known.every((known, index) => known.isSaidBy(keys[index]))
  }

  note(keys: readonly MessageKey[]): void {
    for (const key of keys) this.#known.push(new KnownMessage(key))
  }

  turn(request: DialectRequest, { keys, digest }: Said): Promise<Turn> {
    const turn = this.#take(request, keys)
    this.#last = { digest, turn }
    return turn
  }

  async #take(
    { messages, tools, toolChoice, responseFormat, parallelToolCalls, sampling }: DialectRequest,
    keys: readonly MessageKey[],
  ): Promise<Turn> {
    this.#isBusy = true
    try {
      const fresh = messages.slice(this.#known.length)
      this.note(keys.slice(this.#known.length))
      const context = await this.#context
      this.#open.throwIfAborted()
      context.append(...fresh)
      const turn = await context.turn({
        tools,
        sampling,
        ...(toolChoice !== undefined && { toolChoice }),
        ...(responseFormat && { responseFormat }),
        ...(parallelToolCalls !== undefined && { parallelToolCalls }),
      })
      this.note([keyOf(turn.message)])
      this.lastError = undefined
      return turn
    } catch (thrown) {
      // A request that failed is asked again when it is repeated.
      this.#last = undefined
      this.lastError = MillraceError.from(thrown, 'agent_failed')
      throw thrown
    } finally {
      this.#isBusy = false
    }
  }
}

/** A recorded message, as clients may send it back: some spell tool calls anew, and Claude Code changes them. */
class KnownMessage {
  readonly #key: MessageKey
  #changed: ReadonlySet<string> | undefined

  constructor(key: MessageKey) {
    this.#key = key
  }

  isSaidBy(sent: MessageKey | undefined): boolean {
    if (!sent) return false
    if (sent.digest === this.#key.digest) return true
    const { looseDigest } = sent
    if (looseDigest === undefined) return false
    if (looseDigest === this.#key.looseDigest) return true
    return (this.#changed ??= new Set(this.#key.changedDigests())).has(looseDigest)
  }
}

/** Parts that only the model's API can say do not count: the program may not have been sent them. */
function keyOf(message: Message): MessageKey {
  if (message.role !== 'assistant' || !message.others) return new MessageKey(message)
  const { others: _others, ...rest } = message
  return new MessageKey(rest)
}
