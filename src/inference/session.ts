import { hash } from 'node:crypto'
import { isSigned, keepSignedReply, type LaterVersion, messageJson, type ModelRequest } from '../apis/index.ts'
import { MillraceError } from '../errors/index.ts'
import type { Draft } from '../kit/index.ts'
import {
  type AssistantMessage,
  type CallRecord,
  isJsonObject,
  type Json,
  type Message,
  type MessageNode,
  type SamplingRecord,
} from '../schema/index.ts'
import { DueVersions } from './due-versions.ts'
import { withUsage } from './model/model.ts'
import { type CallHooks, type CompleteReply, laterTurns, type ModelClient, type ModelReply } from './model-client.ts'
import { RecordedTurns, type RecordedSession } from './recorded-session.ts'
import { TokenHistory } from './token-history.ts'
import type { SampledVersions } from './weight-versions.ts'

interface SessionOptions {
  readonly id: string
  readonly model: ModelClient
  readonly recorder: Recorder
  /** The recording that is given again before the session goes on live. */
  readonly recorded?: RecordedSession | undefined
  /** The session starts in the middle of another one, whose turns must be on disk before its first turn. */
  readonly isChild?: boolean
  /** Takes the versions of the weights that sampled the tokens. The rollout and its children share it. */
  readonly sampled?: SampledVersions
}

type TurnRequest = Omit<ModelRequest, 'messages' | 'sessionId'> & { readonly messages?: readonly Message[] }

/** Where a message that answers tool calls came from. */
export type ToolAnswers = Pick<MessageNode, 'tool' | 'tools'>

/** Where a message came from: `call` is there if it was sampled, `tool` or `tools` if it answers calls. */
type Origin = Pick<MessageNode, 'call' | 'tool' | 'tools'> & { readonly tokens?: MessageNode['tokens'] | undefined }

export interface SessionReply {
  readonly message: AssistantMessage
  readonly call: CallRecord
  /** True when the reply came from the journal: nothing was sampled and nothing is owed for it. */
  readonly replayed: boolean
}

/**
 * A rollout's conversation with a model. Every message becomes a node; a turn is asked for only when everything before it is
 * on disk. On resume the agent runs again from the start, and the session answers from the journal, checking every node
 * against it, until the journal ends: from there on it is live.
 */
export class Session {
  readonly id: string
  readonly messages: Message[] = []
  readonly #model: ModelClient
  readonly #recorder: Recorder
  readonly #journalled: readonly MessageNode[]
  readonly #recorded: RecordedTurns | undefined
  readonly #tokens = new TokenHistory()
  readonly #sampled: SampledVersions | undefined
  readonly #dueVersions = new DueVersions()
  #seq = 0
  #leafHash = ''
  /** Whether there is a turn that a crash could lose. Before the first one there is only the prompt, which is made again. */
  #hasTurns: boolean

  constructor({ id, model, recorder, recorded, isChild = false, sampled }: SessionOptions) {
    this.id = id
    this.#sampled = sampled
    this.#model = model
    this.#recorder = recorder
    this.#journalled = recorded?.journalled ? recorded.nodes.slice(0, recorded.journalled) : []
    this.#recorded = recorded && new RecordedTurns(recorded)
    this.#hasTurns = isChild
  }

  get leaf(): number | null {
    return this.#seq === 0 ? null : this.#seq - 1
  }

  append(message: Message, answers?: ToolAnswers): void {
    requireReadable(message)
    this.#add(message, answers)
    if (answers) this.#recorded?.noteAnswer(message)
  }

  get isRepeating(): boolean {
    return this.#journalled.length > this.#seq
  }

  get isRecalling(): boolean {
    return this.#recorded?.isWithin === true
  }

  recall(offset: number): MessageNode | undefined {
    return this.#recorded?.answer(offset)
  }

  get cutOff(): MillraceError | undefined {
    return this.#recorded?.cutOff
  }

  async turn(request: TurnRequest, hooks: CallHooks): Promise<SessionReply> {
    const { messages: conversation, id: sessionId } = this
    const { messages = conversation } = request
    const replayed = this.#recorded && this.#replay(this.#recorded, messages)
    if (replayed) return replayed
    const hadTurns = this.#hasTurns
    this.#hasTurns = true
    if (hadTurns) await this.#recorder.synced()
    const { length } = messages
    const asked: Draft<ModelRequest> = { ...request, messages, sessionId }
    if (messages !== conversation) asked.conversation = conversation
    if (request.captureTokens) asked.continues = this.#tokens.before(messages)
    return this.#take(await this.#model.call(asked, hooks), asked, length)
  }

  /** `length` is the number of messages that the model was asked with: the conversation may have grown since. */
  #take(reply: ModelReply, asked: ModelRequest, length: number): SessionReply {
    if (reply.status !== 'complete') throw reply.error
    const { message, original, tokens } = reply
    const counted = withUsage(reply, asked.messages, this.#model.price)
    const turn = asked.captureTokens && this.#tokens.note({ messages: asked.messages, length, reply: counted })
    if (turn && turn.laterTurns && laterTurns.hasSubscribers) laterTurns.publish({ model: reply.model, ...turn })
    const usage = turn ? { ...counted.usage, ...turn } : counted.usage
    const record: Draft<CallRecord> = { ...callRecord({ ...counted, usage }), sampling: samplingRecord(asked, reply) }
    // Rows name the functions of a conversation, and rows are made of tokens.
    if (asked.captureTokens) record.tools = asked.tools.map(({ function: { name } }) => name)
    const call = original && isSigned(original) ? { ...record, original } : record
    if (call.original) keepSignedReply(message, call)
    if (reply.laterVersion) this.#addLater(this.#seq, reply.laterVersion)
    this.#add(message, { call, tokens })
    return { message, call, replayed: false }
  }

  #addLater(seq: number, later: LaterVersion): void {
    const { versions } = this.#model
    const { before } = later
    if (before !== undefined) {
      versions.note(before)
      this.#sampled?.note(versions, before)
    }
    this.#dueVersions.add(later, (version) => {
      if (later.last !== undefined) versions.note(later.last)
      if (version !== undefined) this.#recorder.version(seq, version)
    })
  }

  #replay(recorded: RecordedTurns, messages: readonly Message[]): SessionReply | undefined {
    const reply = recorded.nextReply()
    const journalled = this.#journalled[this.#seq]
    if (journalled && journalled !== reply) throw diverged(this.id, journalled.seq)
    if (!reply) return undefined
    const { message, call, tokens } = reply
    if (message.role !== 'assistant' || !call) throw diverged(this.id, reply.seq)
    keepSignedReply(message, call)
    if (tokens) this.#tokens.note({ messages, length: messages.length, reply: { message, tokens, usage: call.usage } })
    this.#add(message, { call, tokens })
    return { message, call, replayed: true }
  }

  /** Resolves when the versions of all replies are recorded, as far as backends say them; undefined if they are. */
  versionsRecorded(): Promise<unknown> | undefined {
    return this.#dueVersions.recorded()
  }

  #add(message: Message, { call, tool, tools, tokens }: Origin = {}): void {
    if (tokens && this.#sampled) this.#sampled.noteAll(this.#model.versions, tokens)
    const json = messageJson(message)
    const node: Draft<MessageNode> = {
      seq: this.#seq,
      parent: this.leaf,
      hash: chainHash(this.#leafHash, json),
      message,
      sampled: call !== undefined,
      at: Date.now(),
    }
    // Optional fields are added afterwards, because a literal with conditional spreads is built field by field.
    if (call) node.call = call
    if (tool) node.tool = tool
    if (tools) node.tools = tools
    if (tokens) node.tokens = tokens
    const recorded = this.#journalled[node.seq]
    if (!recorded) this.#recorder.node(node, json)
    else if (recorded.hash !== node.hash) throw diverged(this.id, node.seq)
    this.#seq += 1
    this.#leafHash = node.hash
    this.messages.push(message)
  }
}

/** SHA-256 over the previous hash and the message: one message after one history has one hash. */
export function chainHash(previous: string, json: string): string {
  return hash('sha256', `${previous}\n${json}`, 'base64url')
}

function diverged(id: string, seq: number): MillraceError {
  return new MillraceError('replay_diverged', `rollout ${id} did not repeat message ${seq} of its journal`, {
    data: { rollout: id, seq },
  })
}

/** Keeps what a session says, in order. Declared here and implemented by the store, which stands above this layer. */
export interface Recorder {
  /** Queues the node; `json` is its message, already written. */
  node(node: MessageNode, json: string): void
  /** Resolves when every node so far is on disk; undefined if all are already. */
  synced(): Promise<void> | undefined
  /** The version of the weights that sampled a node that was queued before. */
  version(node: number, version: string): void
}

/** Agents written without types may append anything, and everything downstream reads the conversation. */
function requireReadable(message: Message): void {
  // The fast path: the content of nearly all messages is text.
  if (typeof message.content === 'string') return
  const content: unknown = message.content ?? []
  if (Array.isArray(content) && content.every(isPart)) return
  const found = Array.isArray(content) ? 'a list of other values' : `a value of type ${typeof content}`
  throw new MillraceError(
    'agent_failed',
    `the content of a message must be text, or a list of parts with a type, not ${found}`,
  )
}

function isPart(part: unknown): boolean {
  return typeof part === 'object' && part !== null && 'type' in part
}

export function callRecord(reply: CompleteReply): CallRecord {
  return {
    model: reply.model,
    backend: reply.backend,
    finishReason: reply.finishReason,
    usage: reply.usage,
    cost: reply.cost,
    tries: reply.tries,
    ms: roundedMs(reply.ms),
    waitMs: roundedMs(reply.waitMs),
    ...(reply.firstTokenMs !== undefined && { firstTokenMs: roundedMs(reply.firstTokenMs) }),
  }
}

/** Recorded times have hundredths of a millisecond. */
export const roundedMs = (ms: number): number => Math.round(ms * 100) / 100

type Sampled = Pick<ModelRequest, 'sampling' | 'tools' | 'toolChoice' | 'responseFormat'>
/** Fields of `extra` that are recorded under our own names. They win over what else the request says, as they do on the wire. */
const numberFields = [
  ['temperature', 'temperature'],
  ['top_p', 'topP'],
  ['seed', 'seed'],
  ['top_k', 'topK'],
  ['min_p', 'minP'],
  ['presence_penalty', 'presencePenalty'],
  ['frequency_penalty', 'frequencyPenalty'],
  ['repetition_penalty', 'repetitionPenalty'],
  // The name in llama.cpp.
  ['repeat_penalty', 'repetitionPenalty'],
] as const

/** Fields of `extra` that forbid tokens or change their odds one by one: those of vLLM, SGLang and llama.cpp. */
const constraints = [
  'logit_bias',
  'structured_outputs',
  'guided_json',
  'guided_regex',
  'guided_choice',
  'guided_grammar',
  'structural_tag',
  'json_schema',
  'regex',
  'ebnf',
  'grammar',
  'allowed_token_ids',
  'bad_words',
  'min_tokens',
  'min_new_tokens',
  'ignore_eos',
] as const

interface SampledElsewhere {
  /** Names of fields that restrict the reply and have no place in our own shape. */
  readonly otherConstraints?: readonly string[]
  /** Whether the backend got the client's own words, and so tools and a choice that we have no shape for. */
  readonly isPassed?: boolean
}

/** How a reply was sampled, as far as the request says so. A choice among no tools is not sent, and not recorded. */
export function samplingRecord(
  { sampling, tools, toolChoice: wanted, responseFormat }: Sampled,
  { logprobs, tokens }: Pick<CompleteReply, 'logprobs' | 'tokens'>,
  { otherConstraints = [], isPassed = false }: SampledElsewhere = {},
): SamplingRecord {
  const { temperature, topP, seed, extra = {} } = sampling
  const toolChoice = tools.length > 0 || isPassed ? wanted : undefined
  const record: { -readonly [Field in keyof SamplingRecord]: SamplingRecord[Field] } = {}
  if (temperature !== undefined) record.temperature = temperature
  if (topP !== undefined) record.topP = topP
  if (seed !== undefined) record.seed = seed
  for (const [name, field] of numberFields) {
    const value = extra[name]
    if (typeof value === 'number') record[field] = value
  }
  if (toolChoice !== undefined) record.toolChoice = toolChoice
  if (tools.some(({ function: { strict } }) => strict)) record.strictTools = true
  const constrainedBy = [
    ...(forcesCall(toolChoice) || forcesCall(extra['tool_choice']) ? ['tool_choice'] : []),
    ...(responseFormat || forcesForm(extra['response_format']) ? ['response_format'] : []),
    ...constraints.filter((name) => constrains(extra[name])),
    ...otherConstraints,
  ]
  if (constrainedBy.length > 0) record.constrainedBy = constrainedBy
  if (logprobs && tokens && tokens.logprobs.length > 0) record.logprobs = logprobs
  return record
}

function forcesCall(choice: Json | undefined): boolean {
  return choice === 'required' || (typeof choice === 'object' && choice !== null)
}

function forcesForm(format: Json | undefined): boolean {
  return isJsonObject(format) && format['type'] !== 'text'
}

function constrains(value: Json | undefined): boolean {
  if (value === undefined || value === null || value === false || value === 0 || value === '') return false
  return typeof value !== 'object' || Object.keys(value).length > 0
}
