import type { ResponseFormat } from '../backend.ts'
import { isJsonList, type JsonObject, type Message, type Sampling } from '../../schema/index.ts'
import {
  definedFields,
  isAbsent,
  isEmpty,
  openAiFormat,
  optionalCount,
  optionalFlag,
  optionalList,
  optionalObject,
  optionalText,
  readTemperature,
  rejected,
  requiredText,
  unknownFields,
  Unsupported,
} from '../request-fields.ts'
import type { DialectRequest, ReplyMemory, RequestDraft, ReadContext } from '../server-side.ts'
import { ItemReader } from './read-items.ts'
import { readToolChoice, readTools } from './read-tools.ts'
import type { ToolNames } from './tool-names.ts'

/** Fields that stand for earlier parts of the conversation, or for a prompt before it, which only the provider has. */
const providerContentFields = ['conversation', 'prompt'] as const

/** Fields that ask the server for more than one plain reply. */
const serverSideFields = ['top_logprobs', 'context_management'] as const

/** Labels, and settings of OpenAI's server. A model elsewhere is asked the same without them. */
const ownLabels = ['client_metadata', 'prompt_cache_options', 'access_programs', 'moderation', 'image'] as const

/** What a reply can include of the tools that OpenAI runs, and of the request itself. */
const toolDetails =
  /^(web_search_call|file_search_call|code_interpreter_call|computer_call_output|message\.input_image)\./

/** Fields of Chat that this API lacks. They are not passed on: there they would replace what was read here. */
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
  ...providerContentFields,
  ...serverSideFields,
  ...ownLabels,
  'max_tool_calls',
  ...chatFields,
])

/** All that OpenAI's API takes: the last ones go to the backend unchanged, too. */
export const responsesFields: readonly string[] = [
  ...knownFields,
  ...'metadata prompt_cache_key prompt_cache_retention safety_identifier service_tier user'.split(' '),
]

export function readResponsesRequest(body: JsonObject, before?: ReadContext): DialectRequest {
  const unsupported = new Unsupported('responses', before?.backendApi)
  const { tools, toolNames } = readTools(body, unsupported)
  const request: RequestDraft = {
    model: requiredText(body, 'model'),
    ...readMessages(body, unsupported, { memory: before?.replies, tools: toolNames }),
    tools,
    sampling: readSampling(body, unsupported),
    stream: optionalFlag(body, 'stream') ?? false,
    includeUsage: true,
    wantsTokenIds: false,
    wantsLogprobs: includes(body, 'message.output_text.logprobs'),
    unsupported: unsupported.names,
    body,
    ...definedFields({
      toolNames,
      toolChoice: readToolChoice(body, unsupported, toolNames),
      responseFormat: readFormat(body, unsupported),
      parallelToolCalls: optionalFlag(body, 'parallel_tool_calls'),
      previousReplyId: optionalText(body, 'previous_response_id'),
    }),
    ...(optionalText(body, 'instructions') && { hasInstructions: true }),
  }
  noteIncluded(body, unsupported)
  noteServerSide(body, unsupported)
  unsupported.listIn(request)
  return request
}

/** Whether the client keeps reasoning by itself, and sends it back. */
export function wantsEncryptedReasoning(body: JsonObject): boolean {
  return includes(body, 'reasoning.encrypted_content')
}

function includes({ include }: JsonObject, name: string): boolean {
  return isJsonList(include) && include.includes(name)
}

function readMessages(
  body: JsonObject,
  unsupported: Unsupported,
  known: { readonly memory: ReplyMemory | undefined; readonly tools: ToolNames | undefined },
): Pick<DialectRequest, 'messages' | 'replyNames'> {
  const { input } = body
  const instructions = optionalText(body, 'instructions')
  const messages: Message[] = instructions ? [{ role: 'system', content: instructions }] : []
  if (typeof input === 'string') {
    messages.push({ role: 'user', content: input })
  } else if (isJsonList(input) && (input.length > 0 || goesOn(body))) {
    const reader = new ItemReader(messages, unsupported, known)
    for (let index = 0; index < input.length; index += 1) reader.read(input[index], `input[${index}]`)
    reader.end()
    if (reader.names.size > 0) return { messages, replyNames: reader.names }
  } else if (!isAbsent(input) || !goesOn(body)) {
    throw rejected('input', 'must be a string or a list of at least one item')
  }
  return { messages }
}

function goesOn({ previous_response_id: previous, conversation, prompt }: JsonObject): boolean {
  return !isAbsent(previous) || !isAbsent(conversation) || !isAbsent(prompt)
}

function readFormat(body: JsonObject, unsupported: Unsupported): ResponseFormat | undefined {
  const text = optionalObject(body, 'text')
  if (!text) return undefined
  for (const key of Object.keys(text)) {
    if (key !== 'format' && key !== 'verbosity' && !isAbsent(text[key])) unsupported.add(`text.${key}`)
  }
  return openAiFormat(text['format'], 'text.format', unsupported, (fields) => ({ fields, at: 'text.format.' }))
}

function readSampling(body: JsonObject, unsupported: Unsupported): Sampling {
  return {
    ...readTemperature(body),
    ...definedFields({
      maxTokens: optionalCount(body, 'max_output_tokens'),
      reasoningEffort: readEffort(body, unsupported),
      extra: readExtra(body),
    }),
  }
}

/** Settings for summaries are ignored: they are for servers that hide the reasoning, and ours shows all of it. */
function readEffort(body: JsonObject, unsupported: Unsupported): string | undefined {
  const reasoning = optionalObject(body, 'reasoning')
  if (!reasoning) return undefined
  for (const key of Object.keys(reasoning)) {
    const isKnown = key === 'effort' || key === 'summary' || key === 'generate_summary'
    if (isKnown || isAbsent(reasoning[key])) continue
    // Which earlier reasoning the model sees: what the client sends back, as the model's chat template shows it.
    if (key === 'context') unsupported.addDropped('reasoning.context')
    else unsupported.add(`reasoning.${key}`)
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

function noteIncluded(body: JsonObject, unsupported: Unsupported): void {
  for (const [index, name] of (optionalList(body, 'include') ?? []).entries()) {
    if (typeof name !== 'string') throw rejected(`include[${index}]`, 'must be the name of something to include')
    if (toolDetails.test(name)) unsupported.addDropped(`include ${name}`)
    else if (name !== 'reasoning.encrypted_content') unsupported.add(`include ${name}`)
  }
}

function noteServerSide(body: JsonObject, unsupported: Unsupported): void {
  for (const key of providerContentFields) if (!isAbsent(body[key])) unsupported.addProviderContent(key)
  for (const key of serverSideFields) if (!isEmpty(body[key]) && body[key] !== 0) unsupported.add(key)
  unsupported.addLabels(body, ownLabels)
  if (!isAbsent(body['max_tool_calls'])) unsupported.addDropped('max_tool_calls')
  for (const key of chatFields) if (!isAbsent(body[key])) unsupported.add(key)
  if (optionalFlag(body, 'background') === true) {
    // Servers answer such a request at once with a reply that the client fetches later.
    if (body['stream'] !== true) {
      throw rejected(
        'background',
        'needs stream: true, because a reply cannot be fetched later; set that, or leave this out',
      )
    }
    unsupported.addDropped('background')
  }
  const truncation = optionalText(body, 'truncation') ?? 'disabled'
  // A conversation that fits is not truncated; one that does not is refused by the backend.
  if (truncation !== 'disabled') unsupported.addDropped(`truncation ${truncation}`)
}
