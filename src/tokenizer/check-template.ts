import { isDeepStrictEqual } from 'node:util'
import { MillraceError } from '../errors/index.ts'
import type { AssistantMessage, Message, ToolCall, ToolDefinition } from '../schema/index.ts'
import { type ToolFormat, toolFormatNames, toolFormatOf } from '../tool-formats/index.ts'
import { type Bridge, type RenderSettings, TemplateBridge } from './bridge.ts'
import type { ChatTemplate } from './chat-template.ts'

/** The facts about a chat template on which exact tokens depend, found out by rendering small conversations. */
export interface TemplateReport {
  readonly bridge: TemplateBridge
  /** Each kind of turn that may follow a reply, with the reason if it cannot be continued exactly. */
  readonly turns: readonly CheckedTurn[]
  /** Whether what a turn adds depends on the tools. */
  readonly dependsOnTools: boolean
  /** Whether it depends on the messages before the reply, as where messages are numbered. */
  readonly dependsOnHistory: boolean
  readonly reasoning: ReasoningReport
  /** The text format in which the template writes calls; undefined if no known format reads them. */
  readonly toolFormat: ToolFormat | undefined
  /** Whether the template writes the arguments of earlier calls in its own spelling. */
  readonly respellsArguments: boolean
}

export interface CheckedTurn {
  readonly kind: string
  readonly problem?: string
}

export interface ReasoningReport {
  /** What the template does with the reasoning of earlier replies. Exact tokens keep it in any case. */
  readonly ofEarlierReplies: 'kept' | 'dropped' | 'dropped after the next user message' | 'unknown'
  /** The texts around reasoning, such as `<think>` and `</think>`. */
  readonly markers: ReasoningMarkers | undefined
}

export interface ReasoningMarkers {
  readonly open: string
  readonly close: string
}

/** Throws `config_invalid` if the template renders no plain conversation, or does not end replies in a recognisable way. */
export function checkTemplate(
  template: ChatTemplate,
  settings: Pick<RenderSettings, 'variables'> = {},
): TemplateReport {
  let bridge: TemplateBridge
  try {
    bridge = new TemplateBridge(template)
  } catch (error) {
    throw unfit(MillraceError.from(error, 'config_invalid').rawMessage)
  }
  if (bridge.close === '') throw unfit('it writes nothing after the text of a reply')
  const checks = turnKinds.map((kind) => checkTurn(bridge, kind, settings))
  return {
    bridge,
    turns: checks.map(({ turn }) => turn),
    dependsOnTools: checks.some(({ dependsOnTools }) => dependsOnTools),
    dependsOnHistory: checks.some(({ dependsOnHistory }) => dependsOnHistory),
    reasoning: checkReasoning(template, settings),
    ...checkCalls(template, bridge, settings),
  }
}

function unfit(problem: string): MillraceError {
  return new MillraceError(
    'config_invalid',
    `exact tokens are not possible with this chat template: ${problem}. Leave exact tokens out for this model.`,
  )
}

const call = (id: string): ToolCall => ({
  id,
  type: 'function',
  // Nine letters and digits, because some templates insist on that.
  function: { name: 'probe_tool', arguments: '{"text":"a b","count":2}' },
})
const firstCall = call('call00001')
const secondCall = call('call00002')
const probeTool: ToolDefinition = {
  type: 'function',
  function: {
    name: 'probe_tool',
    description: 'Probes.',
    parameters: { type: 'object', properties: { text: { type: 'string' }, count: { type: 'integer' } } },
  },
}
const question: Message = { role: 'user', content: 'Hello.' }
const answer: AssistantMessage = { role: 'assistant', content: 'Fine.' }
const resultOf = ({ id }: ToolCall): Message => ({ role: 'tool', tool_call_id: id, content: '17' })

interface TurnKind {
  readonly kind: string
  readonly reply: AssistantMessage
  readonly added: readonly Message[]
}

const turnKinds: readonly TurnKind[] = [
  { kind: 'a user message', reply: answer, added: [question] },
  { kind: 'a tool result', reply: { ...answer, tool_calls: [firstCall] }, added: [resultOf(firstCall)] },
  {
    kind: 'results of parallel calls',
    reply: { ...answer, tool_calls: [firstCall, secondCall] },
    added: [resultOf(firstCall), resultOf(secondCall)],
  },
  {
    kind: 'a tool result and a user message',
    reply: { ...answer, tool_calls: [firstCall] },
    added: [resultOf(firstCall), question],
  },
  { kind: 'a system message', reply: answer, added: [{ role: 'system', content: 'Be brief.' }, question] },
]

/** A turn is checked after a short conversation and after longer ones: if it adds the same text, the short one is enough. */
function checkTurn(
  bridge: TemplateBridge,
  { kind, reply, added }: TurnKind,
  { variables }: Pick<RenderSettings, 'variables'>,
): { readonly turn: CheckedTurn } & Pick<TemplateReport, 'dependsOnTools' | 'dependsOnHistory'> {
  const longer: readonly Message[] = [question, answer, question]
  const after = (settings: RenderSettings & { readonly before?: readonly Message[] }): Bridge => {
    try {
      return bridge.after(reply, added, { variables, ...settings })
    } catch (error) {
      return { problem: MillraceError.from(error, 'model_rejected').rawMessage }
    }
  }
  const tools = [probeTool]
  const [plain, withTools] = [after({ tools: [] }), after({ tools })]
  const inLonger = [after({ tools: [], before: longer }), after({ tools, before: [...systemMessage, ...longer] })]
  const dependsOnTools = plain.text !== withTools.text
  const problem = [plain, withTools, ...inLonger].find((each) => each.problem !== undefined)?.problem
  if (problem !== undefined) return { turn: { kind, problem }, dependsOnTools, dependsOnHistory: false }
  const dependsOnHistory = inLonger[0]?.text !== plain.text || inLonger[1]?.text !== withTools.text
  return { turn: { kind }, dependsOnTools, dependsOnHistory }
}

const systemMessage: readonly Message[] = [{ role: 'system', content: 'Be kind.' }]

/** Texts that tokenizers divide, normalise or spell in different ways. */
export const probeTexts: readonly string[] = [
  'Héllo  wörld\n\n\t1234567 {"a": [1.5e-3, null]} 日本語 x𠮷y 🙂🏽 don\'t  \u00a0x',
  'e\u0301 A\u030a \uff26\uff55 \ufb01 \u1112\u1161\u11ab ½² ٣ Ⅷ \u017fİı',
  "DON'T we'LL it’s HTTPServer snake_case __x__ a.b/c\\d \r\n\r x \n y",
  '👩\u200d👩\u200d👧 🇩🇪🇫🇷 ❤\ufe0f नमस्ते ภาษา عَرَبِيّ',
  '\u3000\u2003 \u2028\u200b\u00ad\u0007\u001f \u0085 \ufeff <0x0A> ▁Ġ ##x',
]

/** Conversations that templates write differently. */
export const probeConversations: readonly Conversation[] = [
  { messages: [question], tools: [] },
  { messages: [...systemMessage, question], tools: [probeTool] },
  {
    messages: [question, { ...answer, tool_calls: [firstCall] }, resultOf(firstCall), answer, question],
    tools: [probeTool],
  },
]

interface Conversation {
  readonly messages: readonly Message[]
  readonly tools: readonly ToolDefinition[]
}

const reasoningText = 'MillraceReasoning'

function checkReasoning(template: ChatTemplate, { variables }: Pick<RenderSettings, 'variables'>): ReasoningReport {
  const reply: AssistantMessage = { ...answer, reasoning_content: reasoningText, tool_calls: [firstCall] }
  const rendered = (messages: readonly Message[], last = reply): string => {
    try {
      return template.render({
        messages: [question, last, ...messages],
        tools: [probeTool],
        variables,
        addGenerationPrompt: false,
      })
    } catch {
      return ''
    }
  }
  const atEnd = rendered([], { ...answer, reasoning_content: reasoningText })
  const [beforeResult, beforeUser] = [rendered([resultOf(firstCall)]), rendered([resultOf(firstCall), question])]
  const shown = [atEnd, beforeResult, beforeUser].find((text) => text.includes(reasoningText))
  const isKept = (text: string): boolean => text.includes(reasoningText)
  const ofEarlierReplies = isKept(beforeUser)
    ? 'kept'
    : isKept(beforeResult)
      ? 'dropped after the next user message'
      : shown === undefined && beforeUser === ''
        ? 'unknown'
        : 'dropped'
  return { ofEarlierReplies, markers: markersIn(shown ?? '') ?? usualMarkers(template) }
}

/** The tags right before and right after the reasoning. */
function markersIn(text: string): ReasoningMarkers | undefined {
  const at = text.indexOf(reasoningText)
  if (at === -1) return undefined
  const [open] = /[<[][^<>[\]\s]+[>\]](?=\s*$)/.exec(text.slice(0, at)) ?? []
  const [close] = /(?<=^\s*)[<[]\/[^<>[\]\s]+[>\]]/.exec(text.slice(at + reasoningText.length)) ?? []
  return open === undefined || close === undefined ? undefined : { open, close }
}

/** Templates that drop all reasoning still name the tag that ends it. */
function usualMarkers({ source }: ChatTemplate): ReasoningMarkers | undefined {
  return source.includes('</think>') ? { open: '<think>', close: '</think>' } : undefined
}

/** Finds the format that reads a call as the template writes it. */
function checkCalls(
  template: ChatTemplate,
  bridge: TemplateBridge,
  { variables }: Pick<RenderSettings, 'variables'>,
): Pick<TemplateReport, 'toolFormat' | 'respellsArguments'> {
  const tools = [probeTool]
  let turn: string
  try {
    const messages: readonly Message[] = [question, { role: 'assistant', content: '', tool_calls: [firstCall] }]
    const whole = template.render({ messages, tools, variables, addGenerationPrompt: false })
    // The reply begins behind the generation prompt, unless that says more than the template writes of earlier replies.
    const prompt = template.render({ messages: [question], tools, variables, addGenerationPrompt: true })
    const start = whole.startsWith(prompt)
      ? prompt
      : template.render({ messages: [question], tools, variables, addGenerationPrompt: false })
    turn = whole.slice(start.length, whole.endsWith(bridge.close) ? -bridge.close.length : undefined)
  } catch {
    return { toolFormat: undefined, respellsArguments: false }
  }
  const { name, arguments: written } = firstCall.function
  const toolFormat = toolFormatNames.map(toolFormatOf).find((format) => {
    const [found, ...others] = format.find(turn).calls
    return others.length === 0 && found?.name === name && isSameJson(found.arguments, written)
  })
  return { toolFormat, respellsArguments: !turn.includes(written) }
}

function isSameJson(one: string, other: string): boolean {
  try {
    return isDeepStrictEqual(JSON.parse(one), JSON.parse(other))
  } catch {
    return false
  }
}
