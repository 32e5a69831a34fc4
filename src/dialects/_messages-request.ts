import { MillraceError } from '../errors/index.ts'
import type { JsonObject, Sampling } from '../schema/index.ts'
import { readMessagesInput } from './_messages-input.ts'
import { readMessagesChoice, readMessagesFormat, readMessagesTools } from './_messages-tools.ts'
import { isAbsent, isEmpty, isJsonObject, isList } from './_json.ts'
import { rejected } from './_rejected.ts'
import type { RequestDraft } from './_request-draft.ts'
import {
  optionalFlag,
  optionalInteger,
  optionalObject,
  optionalText,
  optionalTexts,
  requiredText,
  typedObject,
  unknownFields,
  readTemperature,
  requiredCount,
} from './_request-fields.ts'
import type { DialectRequest, SaidBefore } from './server-dialect.ts'
import { Untranslatable } from './_untranslatable.ts'

/** Fields that, unless they are empty, have a meaning in this API alone. */
const ownFields = ['container', 'compaction'] as const

/** Labels, and settings of what only Anthropic's server does. A model elsewhere is asked the same without them. */
const ownLabels = [
  'cache_control',
  'thread',
  'speed',
  'inference_geo',
  'diagnostics',
  'fallbacks',
  'fallback_credit_token',
  'user_profile_id',
  'workspace_id',
] as const

const knownFields: ReadonlySet<string> = new Set([
  ...ownFields,
  ...ownLabels,
  'mcp_servers',
  'context_management',
  'model',
  'messages',
  'system',
  'max_tokens',
  'stop_sequences',
  'temperature',
  'top_p',
  'stream',
  'tools',
  'tool_choice',
  'thinking',
  'output_config',
  'output_format',
  'metadata',
  'service_tier',
])

/** Service tiers by their names in OpenAI's APIs. */
const serviceTiers: ReadonlyMap<string, string> = new Map([
  ['auto', 'auto'],
  ['standard_only', 'default'],
])

/** Thinking budgets, in tokens, up to which an effort is low or medium. */
const lowBudget = 2048
const mediumBudget = 8192

/** Reads the body of a Messages request. */
export function readMessagesRequest(body: JsonObject, before?: SaidBefore): DialectRequest {
  refuseThread(body)
  const untranslatable = new Untranslatable('messages', before?.backendApi)
  const request: RequestDraft = {
    model: requiredText(body, 'model'),
    messages: readMessagesInput(body, untranslatable),
    tools: readMessagesTools(body, untranslatable),
    sampling: readSampling(body, untranslatable),
    stream: optionalFlag(body, 'stream') ?? false,
    includeUsage: true,
    wantsTokenIds: false,
    wantsLogprobs: false,
    untranslatable: untranslatable.names,
    body,
  }
  readMessagesChoice(body, request, untranslatable)
  const format = readMessagesFormat(body, untranslatable)
  if (format !== undefined) request.responseFormat = format
  for (const field of ownFields) if (!isEmpty(body[field])) untranslatable.add(field)
  untranslatable.addLabels(body, ownLabels)
  if (!isEmpty(body['mcp_servers'])) untranslatable.addHosted('mcp_servers')
  noteEdits(body, untranslatable)
  untranslatable.listIn(request)
  return request
}

/** Notes edits of the conversation that the server would make. Those of thinking are left to the model's chat template. */
function noteEdits(body: JsonObject, untranslatable: Untranslatable): void {
  const management = optionalObject(body, 'context_management')
  if (!management) return
  const { edits, ...others } = management
  for (const key of Object.keys(others)) if (!isEmpty(others[key])) untranslatable.add(`context_management.${key}`)
  if (!isAbsent(edits) && !isList(edits)) throw rejected('context_management.edits', 'must be a list, or left out')
  for (const [index, edit] of (edits ?? []).entries()) {
    const at = `context_management.edits[${index}]`
    const { type } = typedObject(edit, at)
    if (type.startsWith('clear_thinking_')) untranslatable.addDropped(`${at}.type ${type}`)
    else untranslatable.add(`${at}.type ${type}`)
  }
}

/** Reads a request to count tokens. There is no reply, so `max_tokens` may be missing and is ignored. */
export function readCountedMessages(body: JsonObject, before?: SaidBefore): DialectRequest {
  return { ...readMessagesRequest({ ...body, max_tokens: 1 }, before), stream: false, body }
}

/**
 * Refuses to continue a thread: a conversation, with its tools, that the server holds, so that a client sends only what is
 * new. No threads are held here. Creating one does no harm; continuing one is answered as by a server that has lost it, and
 * clients then send everything again.
 */
function refuseThread(body: JsonObject): void {
  const value = body['thread']
  if (isAbsent(value) || typedObject(value, 'thread').type === 'create') return
  throw new MillraceError('model_rejected', 'threads are not kept here: send the whole conversation, with its tools', {
    data: { status: 404, param: 'thread', saidCode: 'thread_not_found' },
  })
}

function readSampling(body: JsonObject, untranslatable: Untranslatable): Sampling {
  const maxTokens = requiredCount(body, 'max_tokens', 'is missing: say how many tokens the reply may have')
  const sampling: Sampling = { maxTokens, ...readTemperature(body) }
  const stop = optionalTexts(body, 'stop_sequences')
  if (stop !== undefined) sampling.stop = stop
  const thinking = readThinking(body, untranslatable)
  const config = optionalObject(body, 'output_config')
  const effort = (config && optionalText(config, 'effort', 'output_config.')) ?? thinking.effort
  if (effort !== undefined) sampling.reasoningEffort = effort
  const extra = readExtra(body, thinking.isOff)
  if (extra !== undefined) sampling.extra = extra
  return sampling
}

interface Thinking {
  readonly isOff: boolean
  readonly effort?: string
}

/** Reads how much the model may think. A budget is mapped to an effort; without one (`adaptive`) the model decides. */
function readThinking(body: JsonObject, untranslatable: Untranslatable): Thinking {
  const value = body['thinking']
  if (isAbsent(value)) return { isOff: false }
  const thinking = typedObject(value, 'thinking')
  if (thinking.type === 'disabled') return { isOff: true }
  const budget = optionalInteger(thinking, 'budget_tokens', 'thinking.')
  if (budget !== undefined) return { isOff: false, effort: effortOf(budget) }
  if (thinking.type === 'enabled') {
    throw rejected('thinking.budget_tokens', 'is missing: say how many tokens thinking may take')
  }
  if (thinking.type !== 'adaptive') untranslatable.add(`thinking.type ${thinking.type}`)
  return { isOff: false }
}

function effortOf(budget: number): string {
  if (budget <= lowBudget) return 'low'
  return budget <= mediumBudget ? 'medium' : 'high'
}

/** The unknown fields, such as `top_k`, and the fields that other backends know under another name. */
function readExtra(body: JsonObject, isThinkingOff: boolean): JsonObject | undefined {
  const unknown = unknownFields(body, knownFields)
  const metadata = optionalObject(body, 'metadata')
  const user = metadata && optionalText(metadata, 'user_id', 'metadata.')
  const tier = serviceTiers.get(optionalText(body, 'service_tier') ?? '')
  if (user === undefined && tier === undefined && !isThinkingOff) return unknown
  const template = unknown?.['chat_template_kwargs']
  return {
    ...(user !== undefined && { user }),
    ...(tier !== undefined && { service_tier: tier }),
    ...unknown,
    // This is how vLLM and SGLang turn thinking off; the client's own settings of the template win.
    ...(isThinkingOff && {
      chat_template_kwargs: { enable_thinking: false, ...(isJsonObject(template) && template) },
    }),
  }
}
