import { emptyUsage, type FinishReason, type Message, type ToolCall } from '../../../src/schema/index.ts'
import type { AgentContext, ChildRequest, ChildResult, ContextView } from '../../../src/env/define/context.ts'

/**
 * A view of a conversation whose children give the answers they are told, or fail with an outcome of that name. By default
 * the opening is everything before the first reply.
 */
export function contextView(
  messages: readonly Message[],
  given: Partial<ContextView> & { answers?: string[]; finishReason?: FinishReason } = {},
): { readonly view: ContextView; readonly requests: ChildRequest[]; readonly turns: () => number } {
  const requests: ChildRequest[] = []
  let turns = 0
  const { answers = [], finishReason = 'stop', ...rest } = given
  const firstReply = messages.findIndex(({ role }) => role === 'assistant')
  return {
    requests,
    turns: () => turns,
    view: {
      messages,
      openingLength: firstReply === -1 ? messages.length : firstReply,
      promptTokens: undefined,
      isToolResult: ({ role }) => role === 'tool',
      memory: new Map(),
      signal: new AbortController().signal,
      child: async (request) => {
        requests.push(request)
        const result = childResult(answers.shift() ?? 'no more answers')
        const turn: AgentContext['turn'] = async () => {
          turns += 1
          return {
            message: { role: 'assistant', content: result.answer },
            finishReason,
            calls: [],
            usage: emptyUsage(),
          }
        }
        await request.agent?.({ ...noAgentContext, turn })
        return result
      },
      ...rest,
    },
  }
}

/** A context that children do not use: they only answer. */
const noAgentContext: AgentContext = {
  prompt: [],
  model: 'scripted',
  use: notToBeUsed,
  messages: [],
  append: notToBeUsed,
  turn: notToBeUsed,
  task: {},
  depth: 0,
  tools: { definitions: [], call: notToBeUsed, hasFailed: notToBeUsed, with: notToBeUsed, only: notToBeUsed },
  update: notToBeUsed,
  verify: notToBeUsed,
  child: notToBeUsed,
  requireNames: notToBeUsed,
  note: notToBeUsed,
  budget: { turnsLeft: 1, tokensLeft: 1, costLeftUsd: 1, workingMsLeft: 1, wallMsLeft: 1 },
  signal: new AbortController().signal,
}

function notToBeUsed(): never {
  throw new Error('not to be used')
}

function childResult(said: string): ChildResult {
  const outcome = said === 'model_error' || said === 'max_tokens' ? said : 'completed'
  return {
    id: 'child',
    outcome,
    answer: outcome === 'completed' ? said : '',
    messages: [],
    turns: 1,
    usage: emptyUsage(),
  }
}

/** A reply with one call, and its result. */
export function toolTurn(name: string, result: string): readonly Message[] {
  const call: ToolCall = { id: `id_${name}`, type: 'function', function: { name, arguments: `{"of":"${name}"}` } }
  return [
    { role: 'assistant', content: `I call ${name}.`, tool_calls: [call] },
    { role: 'tool', tool_call_id: call.id, content: result },
  ]
}
