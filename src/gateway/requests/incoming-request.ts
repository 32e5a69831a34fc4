import { hash } from 'node:crypto'
import {
  chatServer,
  type CountingDialect,
  type DialectRequest,
  generateServer,
  messagesServer,
  type ReplyMemory,
  responsesServer,
  type ServerDialect,
} from '../../apis/index.ts'
import { MillraceError } from '../../errors/index.ts'
import { depthProblem, utf8Problem } from '../../kit/index.ts'
import {
  type ApiName,
  type ClientApi,
  isJsonObject,
  type Json,
  type JsonObject,
  type Message,
  type Sampling,
} from '../../schema/index.ts'
import type { Caller } from '../sessions/session-memory.ts'
import type { GatewayModel, GatewayModels, HostedTools } from '../models.ts'
import type { ContinuedBody, LastBody } from '../sessions/last-body.ts'
import type { KnownPrefix } from '../sessions/session-tree.ts'
import { type ClientReply, parsedMembers } from '../../endpoint/index.ts'
import { upstreamBody } from './upstream-body.ts'

export interface Choice {
  readonly index: number
  readonly count: number
}

/** One request for a model, as the HTTP server hands it over. */
export interface InteractionCall {
  readonly caller: Caller
  /** The session that the path names. If missing, the session of the key; an admin's key has none, and nothing is recorded. */
  readonly sessionId?: string
  /** Requests without a session that have the same key go to the same backend, as far as its load allows. */
  readonly routingKey?: string
  readonly api: ClientApi
  /** How the request is read and answered, if its server has other rules than those of `api`. */
  readonly dialect?: ServerDialect
  readonly body: Buffer
  readonly maxJsonDepth?: number
  /** Asks only how many tokens the prompt has: nothing is sampled, and nothing recorded. */
  readonly countsOnly?: true
  readonly choice?: Choice
  readonly bodyHeaders?: Readonly<Record<string, string>>
  readonly retryCount: number
  readonly traceparent?: string
  /** The HTTP server's id of the request, for listeners to events. */
  readonly requestId?: string
}

interface ReadRequest {
  readonly request: DialectRequest
  readonly model: GatewayModel
}

export interface ParsedBody {
  readonly members: JsonObject
  readonly continued: ContinuedBody<KnownPrefix> | undefined
}

interface ReadingAids {
  readonly hostedTools: HostedTools
  readonly replies?: ReplyMemory | undefined
  readonly isRecorded?: true
}

const dialects: Readonly<Record<ClientApi, ServerDialect>> = {
  chat: chatServer,
  responses: responsesServer,
  messages: messagesServer,
  generate: generateServer,
}

/** How many levels the messages of a body lie inside of: its object, and their list. */
const messagesDepth = 2

export class IncomingRequest {
  readonly call: InteractionCall
  readonly client: ClientReply
  readonly dialect: ServerDialect
  readonly startedAt = performance.now()
  /** What the client sent, with the fields that it lacks. */
  body: Buffer
  request: DialectRequest | undefined
  model: GatewayModel | undefined

  constructor(call: InteractionCall, client: ClientReply) {
    this.call = call
    this.client = client
    this.dialect = call.dialect ?? dialects[call.api]
    this.body = call.body
  }

  get session(): string | undefined {
    const { caller, sessionId } = this.call
    return sessionId ?? (caller.kind === 'session' ? caller.sessionId : undefined)
  }

  get counting(): CountingDialect {
    const { api, counting } = this.dialect
    if (counting) return counting
    const message = `the ${api} API cannot count tokens; use the messages or the responses API`
    throw new MillraceError('usage', message, { data: { status: 400 } })
  }

  /** Parses the body; of one that continues the last body, only what is new. Throws what the client is to be told if it is not valid. */
  parse(lastBody?: LastBody<KnownPrefix>): ParsedBody {
    const { api, body } = this.call
    const problem = utf8Problem(body)
    if (problem !== undefined) throw new MillraceError('model_rejected', problem, { data: { status: 400 } })
    const continued = api === 'chat' ? lastBody?.continuedBy(body) : undefined
    this.#refuseDeep(continued)
    return { members: this.#complete(parsedMembers(api, continued?.text ?? body.toString())), continued }
  }

  #complete(members: JsonObject): JsonObject {
    const missing = this.dialect.missingFields?.(members) ?? {}
    if (Object.keys(missing).length === 0) return members
    this.body = upstreamBody({ bytes: this.call.body, members }, missing)
    return { ...members, ...missing }
  }

  /** Reads the request. Throws what the client is to be told if it is not valid, or wants a model or feature that is missing. */
  read({ members, continued }: ParsedBody, models: GatewayModels, aids: ReadingAids): ReadRequest {
    const { api, countsOnly } = this.call
    const { replies, isRecorded, hostedTools } = aids
    const { model: name } = members
    const known = typeof name === 'string' ? models.known(name) : undefined
    const backendApi = known?.isExact ? 'ids' : known?.api
    const dialect = countsOnly ? this.counting : this.dialect
    const request = dialect.read(members, { replies, messages: continued?.known, backendApi })
    this.request = request
    if (isRecorded) refuseProviderContent(request)
    const model = api === 'generate' ? models.findSglang(request.model) : models.find(request.model)
    this.model = model
    if (isRecorded || !model.takesChoices) refuseChoices(request)
    if (api !== 'generate') refuseUnsupported(request, model, { api, hostedTools })
    return { request, model }
  }

  /** Of a body that continues the last one, only what is new is looked at. */
  #refuseDeep(continued: ContinuedBody<KnownPrefix> | undefined): void {
    const { body, maxJsonDepth } = this.call
    if (maxJsonDepth === undefined) return
    const problem = continued
      ? depthProblem(body.subarray(continued.knownBytes), maxJsonDepth, messagesDepth)
      : depthProblem(body, maxJsonDepth)
    if (problem !== undefined) throw new MillraceError('usage', problem)
  }
}

const maxNames = 16

/** Whether a client's body can be passed on to the model. */
export function speaks({ api, isExact }: Pick<GatewayModel, 'api' | 'isExact'>, clientApi: ClientApi): boolean {
  return !isExact && api === clientApi
}

/** Refuses, by name, what the model's API cannot say, if the model would be asked something else without it. */
function refuseUnsupported(
  request: DialectRequest,
  model: GatewayModel,
  { api, hostedTools }: { readonly api: ApiName; readonly hostedTools: HostedTools },
): void {
  if (speaks(model, api)) return
  const { unsupported, hosted = [] } = request
  const refusedTools = hostedTools === 'refuse' ? hosted : []
  // The log-probabilities of exact tokens are here anyway.
  const lost = model.isExact ? unsupported.filter((name) => name !== 'logprobs') : unsupported
  refuse([...lost, ...refusedTools, ...unsupportedBy(model.api, request)], model, api)
}

export function droppedFields({ dropped = [], hosted = [], sampling }: DialectRequest, model: GatewayModel): string[] {
  return [...dropped, ...hosted, ...labelsUnsupportedBy(model.api, sampling)]
}

/** Like `refuseUnsupported`, for earlier messages, if a request only names the reply that it continues. */
export function refuseUnsupportedEarlier(earlier: readonly Message[], model: GatewayModel, api: ApiName): void {
  if (speaks(model, api)) return
  const lost = new Set<string>()
  for (const message of earlier) {
    const { content } = message
    const others = message.role === 'assistant' ? message.others : typeof content === 'string' ? undefined : content
    for (const part of others ?? []) if (part.type === 'other') lost.add(`${kindOf(part.value)} in an earlier message`)
  }
  refuse([...lost], model, api)
}

/** A field of all SGLang's APIs: the prompt continues one that the server keeps. */
const engineSession = 'session_params'

/** Refuses references to content that only the provider has, because a record must hold all that was said. */
function refuseProviderContent({ providerContent = [], body }: DialectRequest): void {
  const names = body[engineSession] ? [...providerContent, engineSession] : providerContent
  const [param] = names
  if (param === undefined) return
  const message = `a session records whole conversations, but only the provider has the content of: ${names.join(', ')}. Send the content itself, or send the request without a session.`
  throw new MillraceError('model_rejected', message, { data: { status: 400, param } })
}

function kindOf(value: Json): string {
  const type = isJsonObject(value) ? value['type'] : undefined
  return typeof type === 'string' ? type.slice(0, 80) : 'content of one API only'
}

function refuse(lost: readonly string[], model: GatewayModel, api: ApiName): void {
  const [param] = lost
  if (param === undefined) return
  const names = lost.slice(0, maxNames).join(', ')
  const [has, others] = model.isExact
    ? ['has exact tokens, with which a client cannot use', 'without exact tokens']
    : [`uses the ${model.api} API, which does not support`, `with the ${api} API`]
  const message = `model ${model.name} ${has}: ${names}. Leave it out, or use a model ${others}.`
  throw new MillraceError('model_rejected', message, { data: { status: 400, param } })
}

/** The names of what the model's API does not support. Hints are not listed: a reply without them is still valid. */
function unsupportedBy(api: ApiName, request: DialectRequest): readonly string[] {
  if (api === 'chat') return []
  const { messages, sampling, responseFormat, body } = request
  const { stop = [], seed } = sampling
  const names: string[] = []
  if (api === 'responses' && stop.length > 0) names.push('stop_sequences' in body ? 'stop_sequences' : 'stop')
  if (seed !== undefined) names.push('seed')
  if (api === 'messages' && responseFormat?.kind === 'json_object') {
    names.push(`${'text' in body ? 'text.format' : 'response_format'} json_object`)
  }
  if (api === 'messages') names.push(...wishesUnsupportedByMessages(request))
  const named = messages.findIndex((message) => message.role === 'user' && message.name !== undefined)
  if (named !== -1) names.push(`messages[${named}].name`)
  return names
}

/** Fields of OpenAI's APIs that label a request and do not change its reply. */
const labels: ReadonlySet<string> = new Set([
  'user',
  'safety_identifier',
  'metadata',
  'prompt_cache_key',
  'prompt_cache_retention',
  'service_tier',
])

/** Fields of OpenAI's APIs that Messages has no words for, each with a test for values that change nothing. */
const wishes: ReadonlyMap<string, (value: Json) => boolean> = new Map([
  ['verbosity', (value) => value === 'medium'],
  ['presence_penalty', (value) => value === 0],
  ['frequency_penalty', (value) => value === 0],
  ['logit_bias', (value) => isJsonObject(value) && Object.keys(value).length === 0],
])

function wishesUnsupportedByMessages({ sampling: { extra = {} }, body }: DialectRequest): string[] {
  const names: string[] = []
  for (const [name, asksNothing] of wishes) {
    const value = extra[name]
    if (value === undefined || value === null || asksNothing(value)) continue
    names.push(name in body ? name : `text.${name}`)
  }
  return names
}

/** The labels of a request that the model's API has no words for. The user, too, is one of them if Messages gets another. */
function labelsUnsupportedBy(api: ApiName, { extra = {} }: Sampling): string[] {
  if (api !== 'messages') return []
  const user = 'user' in extra ? 'user' : 'safety_identifier'
  return Object.keys(extra).filter((name) => labels.has(name) && name !== user)
}

/** A client's sampling in the words of the model's API: servers of Messages refuse fields that they do not know. */
export function samplingIn(api: ApiName, sampling: Sampling): Sampling {
  const { extra, ...rest } = sampling
  if (api !== 'messages' || !extra) return sampling
  const user = extra['user'] ?? extra['safety_identifier']
  const others = Object.entries(extra).filter(([name]) => !labels.has(name) && !wishes.has(name))
  const own = { ...Object.fromEntries(others), ...(typeof user === 'string' && { metadata: { user_id: user } }) }
  return Object.keys(own).length > 0 ? { ...rest, extra: own } : rest
}

/** The members of a body that may ask for several choices; undefined for others, which are not parsed. */
export function membersWithChoices({ api, body }: InteractionCall): JsonObject | undefined {
  // Inside of a string, a quote would have a backslash before it. JSON allows escaped letters in keys.
  if (api !== 'chat' || !(body.includes('"n"') || body.includes('\\u006'))) return undefined
  try {
    const members: unknown = JSON.parse(body.toString())
    return isJsonObject(members) ? members : undefined
  } catch {
    // The client is told what is wrong where the request is read.
    return undefined
  }
}

/** What tells a request from others of its session. The conversation is not digested again: `leaf` stands for it. */
export function requestKey({ api, body, choice }: InteractionCall, leaf: number, members: JsonObject): string {
  const { messages: _said, input: _saidInResponses, ...rest } = members
  const key = `${api} ${leaf} ${body.length} ${hash('sha256', JSON.stringify(rest), 'base64url')}`
  return choice ? `${key} ${choice.index}/${choice.count}` : key
}

export function choicesAfter({ choice }: InteractionCall): number {
  return choice ? choice.count - 1 - choice.index : 0
}

function refuseChoices({ choices = 1 }: DialectRequest): void {
  if (choices === 1) return
  const message = `\`seed\` is out of range for \`n\` choices: choice i is sent seed + i, an integer of at most ${Number.MAX_SAFE_INTEGER} in size. Send a seed nearer to 0, or leave it out.`
  throw new MillraceError('model_rejected', message, { data: { status: 400, param: 'seed' } })
}
