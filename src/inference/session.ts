import { hash } from 'node:crypto'
import { MillraceError } from '../errors/index.ts'
import type { Draft } from '../kit/index.ts'
import type { AssistantMessage, CallRecord, Message, MessageNode } from '../schema/index.ts'
import type { ModelRequest } from './backend.ts'
import { messageJson } from './wire/message-json.ts'
import { isSealed, keepSealed } from './wire/sealed-reply.ts'
import type { CallHooks, ModelClient } from './model-contract.ts'
import type { CompleteReply, ModelReply } from './model-reply.ts'
import { requireReadable } from './_readable-message.ts'
import type { Recorder } from './recorder.ts'
import { samplingRecord } from './sampling-record.ts'
import { TapeReader, type Tape } from './tape.ts'
import { hasAllTokens, withUsage } from './untold-usage.ts'

export interface SessionOptions {
  readonly id: string
  readonly model: ModelClient
  readonly recorder: Recorder
  /** What an earlier sitting recorded for this very attempt, in order. The session repeats it before it goes on live. */
  readonly journalled?: readonly MessageNode[]
  /** What another rollout heard, to be heard again by this one. The journal takes precedence over it. */
  readonly tape?: Tape | undefined
  /** The session starts in the middle of another one, whose turns must be on disk before its first turn. */
  readonly isChild?: boolean
}

/** `messages`, if given, are sent in place of the conversation. */
type TurnRequest = Omit<ModelRequest, 'messages' | 'sessionId'> & { readonly messages?: readonly Message[] }

/** Where a message that answers tool calls came from. */
export type ToolAnswers = Pick<MessageNode, 'tool' | 'tools'>

/** Where a message came from: `call` is there if it was sampled, `tool` or `tools` if it answers calls. */
type Origin = Pick<MessageNode, 'call' | 'tool' | 'tools'> & { readonly tokens?: MessageNode['tokens'] | undefined }

/** The origin of a message that was neither sampled nor returned by a tool. */
const nobody: Origin = {}

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
  readonly #tape: TapeReader | undefined
  #seq = 0
  #leafHash = ''
  /** Whether there is a turn that a crash could lose. Before the first one there is only the prompt, which is made again. */
  #hasTurns: boolean

  constructor({ id, model, recorder, journalled = [], tape, isChild = false }: SessionOptions) {
    this.id = id
    this.#model = model
    this.#recorder = recorder
    this.#journalled = journalled
    this.#tape = tape && new TapeReader(tape)
    this.#hasTurns = isChild
  }

  /** The node the conversation ends with. */
  get leaf(): number | null {
    return this.#seq === 0 ? null : this.#seq - 1
  }

  append(message: Message, answers?: ToolAnswers): void {
    requireReadable(message)
    this.#add(message, answers ?? nobody)
    if (answers) this.#tape?.noteAnswer(message)
  }

  /** Whether answers to tool calls may be recorded already. */
  get isRecalling(): boolean {
    return this.#journalled.length > this.#seq || this.#tape?.isWithin === true
  }

  /** The node recorded `offset` messages after the present end, if any: the answer to a tool call, perhaps. */
  recall(offset: number): MessageNode | undefined {
    return this.#journalled[this.#seq + offset] ?? this.#tape?.answer(offset)
  }

  /** See `TapeReader.cutOff`. */
  get cutOff(): MillraceError | undefined {
    return this.#tape?.cutOff
  }

  /** Promises are chained, not awaited: a rollout spends most of its life here, and an async frame would take 0.5 KB. */
  turn(request: TurnRequest, hooks: CallHooks): Promise<SessionReply> {
    const recorded = this.#journalled[this.#seq]
    if (recorded ?? this.#tape) return Promise.try(() => this.#replay(recorded) ?? this.#live(request, hooks))
    return this.#live(request, hooks)
  }

  #live(request: TurnRequest, hooks: CallHooks): Promise<SessionReply> {
    const pending = this.#hasTurns ? this.#recorder.synced() : undefined
    this.#hasTurns = true
    return pending ? pending.then(() => this.#ask(request, hooks)) : this.#ask(request, hooks)
  }

  #ask(request: TurnRequest, hooks: CallHooks): Promise<SessionReply> {
    const { messages: conversation, id: sessionId } = this
    const asked = request.messages
      ? { ...request, messages: request.messages, conversation, sessionId }
      : { ...request, messages: conversation, sessionId }
    return this.#model.call(asked, hooks).then((reply) => this.#take(reply, asked))
  }

  #take(reply: ModelReply, asked: ModelRequest): SessionReply {
    if (reply.status !== 'complete') throw reply.error
    const { message, original, tokens } = reply
    const counted = withUsage(reply, asked.messages, this.#model.price)
    const usage = asked.captureTokens ? { ...counted.usage, captured: hasAllTokens(counted) ? 1 : 0 } : counted.usage
    const record = { ...callRecord({ ...counted, usage }), sampling: samplingRecord(asked, reply) }
    const call = original && isSealed(original) ? { ...record, original } : record
    keepSealed(message, call)
    this.#add(message, { call, tokens })
    return { message, call, replayed: false }
  }

  /** The recorded reply to this turn, from the journal or else the tape; undefined if neither has one. */
  #replay(journalled: MessageNode | undefined): SessionReply | undefined {
    // The tape is always advanced, so that it stays in step with the turns.
    const taped = this.#tape?.nextReply()
    const recorded = journalled ?? taped
    if (!recorded) return undefined
    const { message, call, tokens } = recorded
    if (message.role !== 'assistant' || !call) throw diverged(this.id, recorded.seq)
    keepSealed(message, call)
    this.#add(message, { call, tokens })
    return { message, call, replayed: true }
  }

  #add(message: Message, { call, tool, tools, tokens }: Origin): void {
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

/** A complete reply as it is recorded. */
export function callRecord(reply: CompleteReply): CallRecord {
  return {
    model: reply.model,
    backend: reply.backend,
    finishReason: reply.finishReason,
    usage: reply.usage,
    cost: reply.cost,
    tries: reply.tries,
    ms: round(reply.ms),
    waitMs: round(reply.waitMs),
    ...(reply.firstTokenMs !== undefined && { firstTokenMs: round(reply.firstTokenMs) }),
  }
}

const round = (ms: number): number => Math.round(ms * 100) / 100

function diverged(id: string, seq: number): MillraceError {
  return new MillraceError('replay_diverged', `rollout ${id} did not repeat message ${seq} of its journal`, {
    data: { rollout: id, seq },
  })
}
