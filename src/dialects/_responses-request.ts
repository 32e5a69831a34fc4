import type { ResponseFormat } from '../inference/index.ts'
import type { JsonObject, Message, Sampling } from '../schema/index.ts'
import { isAbsent, isEmpty, isList } from './_json.ts'
import { rejected } from './_rejected.ts'
import type { RequestDraft } from './_request-draft.ts'
import {
  optionalCount,
  optionalFlag,
  optionalList,
  optionalObject,
  optionalText,
  requiredText,
  unknownFields,
  readTemperature,
} from './_request-fields.ts'
import { openAiFormat } from './_response-format.ts'
import { ItemReader } from './_responses-items.ts'
import { readToolChoice, readTools } from './_responses-tools.ts'
import type { ToolNames } from './_tool-names.ts'
import { Untranslatable } from './_untranslatable.ts'
import type { DialectRequest, ReplyMemory, SaidBefore } from './server-dialect.ts'

/** Fields that stand for earlier parts of the conversation, or for a prompt before it, which only the provider has. */
const heldFields = ['conversation', 'prompt'] as const

/** Fields that ask the server for more than one plain reply. */
const serverSideFields = ['top_logprobs', 'context_management'] as const

/** Labels, and settings of OpenAI's server. A model elsewhere is asked the same without them. */
const ownLabels = ['client_metadata', 'prompt_cache_options', 'access_programs', 'moderation', 'image'] as const

/** What a reply can include of the tools that OpenAI runs, and of the request itself. */
const toolDetails =
  /^(web_search_call|file_search_call|code_interpreter_call|computer_call_output|message\.input_image)\./

/**
 * Fields of Chat that this API does not have. They are not passed on: in a Chat request they would replace what was read
 * here.
 */
const chatFields = ['messages', 'n'] as const

/** Fields that are read here, or have no effect on the reply. All others go to the backend unchanged. */
const knownFields: ReadonlySet<string> = new Set([
  'model',
  'input',
  'instructions',
  'tools',
  'tool_choice',
  'parallel_tool_calls',
  'text',
  'max_output_tokens',
  'temperature',
  'top_p',
  'reasoning',
  'include',
  'previous_response_id',
  'stream',
  'stream_options',
  'store',
  'background',
  'truncation',
  ...heldFields,
  ...serverSideFields,
  ...ownLabels,
  'max_tool_calls',
  ...chatFields,
])

/** Reads the body of a Responses request. */
export function readResponsesRequest(body: JsonObject, before?: SaidBefore): DialectRequest {
  const untranslatable = new Untranslatable('responses', before?.backendApi)
  const { tools, toolNames } = readTools(body, untranslatable)
  const request: RequestDraft = {
    model: requiredText(body, 'model'),
    ...readMessages(body, untranslatable, { memory: before?.replies, tools: toolNames }),
    tools,
    sampling: readSampling(body, untranslatable),
    stream: optionalFlag(body, 'stream') ?? false,
    includeUsage: true,
    wantsTokenIds: false,
    wantsLogprobs: includes(body, 'message.output_text.logprobs'),
    untranslatable: untranslatable.names,
    body,
  }
  if (toolNames) request.toolNames = toolNames
  const toolChoice = readToolChoice(body, untranslatable, toolNames)
  if (toolChoice !== undefined) request.toolChoice = toolChoice
  const format = readFormat(body, untranslatable)
  if (format !== undefined) request.responseFormat = format
  const parallel = optionalFlag(body, 'parallel_tool_calls')
  if (parallel !== undefined) request.parallelToolCalls = parallel
  const previous = optionalText(body, 'previous_response_id')
  if (previous !== undefined) request.previousReplyId = previous
  if (optionalText(body, 'instructions')) request.hasInstructions = true
  noteIncluded(body, untranslatable)
  noteServerSide(body, untranslatable)
  untranslatable.listIn(request)
  return request
}

/** Whether the client keeps reasoning by itself, and sends it back. */
export function wantsEncryptedReasoning(body: JsonObject): boolean {
  return includes(body, 'reasoning.encrypted_content')
}

function includes({ include }: JsonObject, name: string): boolean {
  return isList(include) && include.includes(name)
}

function readMessages(
  body: JsonObject,
  untranslatable: Untranslatable,
  known: { readonly memory: ReplyMemory | undefined; readonly tools: ToolNames | undefined },
): Pick<DialectRequest, 'messages' | 'replyNames'> {
  const { input } = body
  const instructions = optionalText(body, 'instructions')
  const messages: Message[] = instructions ? [{ role: 'system', content: instructions }] : []
  if (typeof input === 'string') {
    messages.push({ role: 'user', content: input })
  } else if (isList(input) && (input.length > 0 || goesOn(body))) {
    const reader = new ItemReader(messages, untranslatable, known)
    for (let index = 0; index < input.length; index += 1) reader.read(input[index], `input[${index}]`)
    reader.end()
    if (reader.names.size > 0) return { messages, replyNames: reader.names }
  } else if (!isAbsent(input) || !goesOn(body)) {
    throw rejected('input', 'must be a string or a list of at least one item')
  }
  return { messages }
}

/** Whether the request has something to reply to even without input. */
function goesOn({ previous_response_id: previous, conversation, prompt }: JsonObject): boolean {
  return !isAbsent(previous) || !isAbsent(conversation) || !isAbsent(prompt)
}

function readFormat(body: JsonObject, untranslatable: Untranslatable): ResponseFormat | undefined {
  const text = optionalObject(body, 'text')
  if (!text) return undefined
  for (const key of Object.keys(text)) {
    if (key !== 'format' && key !== 'verbosity' && !isAbsent(text[key])) untranslatable.add(`text.${key}`)
  }
  return openAiFormat(text['format'], 'text.format', untranslatable, (fields) => ({ fields, at: 'text.format.' }))
}

function readSampling(body: JsonObject, untranslatable: Untranslatable): Sampling {
  const sampling = readTemperature(body)
  const maxTokens = optionalCount(body, 'max_output_tokens')
  if (maxTokens !== undefined) sampling.maxTokens = maxTokens
  const effort = readEffort(body, untranslatable)
  if (effort !== undefined) sampling.reasoningEffort = effort
  const extra = readExtra(body)
  if (extra !== undefined) sampling.extra = extra
  return sampling
}

/**
 * Reads the effort. The settings for summaries are ignored: they are for servers that hide the reasoning, and ours shows all
 * of it.
 */
function readEffort(body: JsonObject, untranslatable: Untranslatable): string | undefined {
  const reasoning = optionalObject(body, 'reasoning')
  if (!reasoning) return undefined
  for (const key of Object.keys(reasoning)) {
    const isKnown = key === 'effort' || key === 'summary' || key === 'generate_summary'
    if (isKnown || isAbsent(reasoning[key])) continue
    // Which earlier reasoning the model sees: what the client sends back, as the model's chat template shows it.
    if (key === 'context') untranslatable.addDropped('reasoning.context')
    else untranslatable.add(`reasoning.${key}`)
  }
  return optionalText(reasoning, 'effort', 'reasoning.')
}

/** The extra fields. `verbosity` is a top-level field in Chat, so it is moved there. */
function readExtra(body: JsonObject): JsonObject | undefined {
  const text = optionalObject(body, 'text')
  const verbosity = text && optionalText(text, 'verbosity', 'text.')
  const unknown = unknownFields(body, knownFields)
  return verbosity === undefined ? unknown : { ...unknown, verbosity }
}

function noteIncluded(body: JsonObject, untranslatable: Untranslatable): void {
  for (const [index, name] of (optionalList(body, 'include') ?? []).entries()) {
    if (typeof name !== 'string') throw rejected(`include[${index}]`, 'must be the name of something to include')
    if (toolDetails.test(name)) untranslatable.addDropped(`include ${name}`)
    else if (name !== 'reasoning.encrypted_content') untranslatable.add(`include ${name}`)
  }
}

function noteServerSide(body: JsonObject, untranslatable: Untranslatable): void {
  for (const key of heldFields) if (!isAbsent(body[key])) untranslatable.addHeld(key)
  for (const key of serverSideFields) if (!isEmpty(body[key]) && body[key] !== 0) untranslatable.add(key)
  untranslatable.addLabels(body, ownLabels)
  // A limit for the tools that OpenAI runs.
  if (!isAbsent(body['max_tool_calls'])) untranslatable.addDropped('max_tool_calls')
  for (const key of chatFields) if (!isAbsent(body[key])) untranslatable.add(key)
  noteBackground(body, untranslatable)
  const truncation = optionalText(body, 'truncation') ?? 'disabled'
  // A conversation that fits is not truncated; one that does not is refused by the backend.
  if (truncation !== 'disabled') untranslatable.addDropped(`truncation ${truncation}`)
}

/** Notes or refuses a background request, which servers answer at once with a reply that the client fetches later. */
function noteBackground(body: JsonObject, untranslatable: Untranslatable): void {
  if (optionalFlag(body, 'background') !== true) return
  if (body['stream'] !== true) {
    throw rejected('background', 'needs stream: true here, where no reply can be fetched later; or leave it out')
  }
  untranslatable.addDropped('background')
}
