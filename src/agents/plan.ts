import { checkOptions, wholeNumber } from '../env/index.ts'
import type { Agent, AgentContext } from '../env/index.ts'
import { MillraceError } from '../errors/index.ts'
import { andList } from '../kit/index.ts'
import { textOf, type Message, type ToolCall } from '../schema/index.ts'
import {
  type PlannedCall,
  planFeedback,
  planRequest,
  type PlanRules,
  type ReadPlan,
  readPlan,
  withResults,
} from './plan-text.ts'
import { aside } from './children.ts'
import { requireWhole, withoutThoughts, withRequest } from './replies.ts'

export interface PlanOptions {
  /** How many calls a plan may have; 20 if not given. */
  readonly maxCalls?: number
}

const optionShape = { maxCalls: wholeNumber(1).optional() }

/**
 * Plans all tool calls before the first is made, makes them, and answers: two model turns, however many calls. The plan is
 * asked for in a child. The calls stand in the rollout's own conversation, in as many assistant messages as results wait for
 * each other. A reply that is no plan is sent back once; after that the answer is given without calls.
 */
export function plan(options: PlanOptions = {}): Agent {
  checkOptions('plan()', optionShape, options)
  const { maxCalls = 20 } = options
  return async (context) => {
    const { turn, tools, append, update } = context
    const rules: PlanRules = { tools: tools.definitions, maxCalls }
    for (;;) {
      const waves = rules.tools.length === 0 ? [] : await askForPlan(context, rules)
      await carryOut(waves, context)
      // Some backends refuse a conversation with calls whose tools are not declared.
      const { message, finishReason } = await turn({ toolChoice: 'none' })
      requireWhole(finishReason)
      const changes = await update(message)
      if (changes?.messages) append(...changes.messages)
      if (changes?.end || !changes?.messages?.length) return
    }
  }
}

type Waves = readonly (readonly PlannedCall[])[]

async function askForPlan({ child, messages }: AgentContext, rules: PlanRules): Promise<Waves> {
  return await aside(child, { prompt: withRequest(messages, planRequest(rules)) }, async ({ turn, append }) => {
    const ask = async (): Promise<ReadPlan> => {
      const { message, finishReason } = await turn({ tools: [] })
      requireWhole(finishReason)
      return readPlan(withoutThoughts(textOf(message)), rules)
    }
    const first = await ask()
    if ('waves' in first) return first.waves
    append({ role: 'user', content: planFeedback(first.problem) })
    const second = await ask()
    return 'waves' in second ? second.waves : []
  })
}

/**
 * Makes planned calls as if the model had made them in its replies, so that they are recorded, shown and resumed as such. A call
 * that needs the result of one that failed is not made, and its own result says so.
 */
async function carryOut(waves: Waves, { append, tools, messages }: AgentContext): Promise<void> {
  const results = new Map<string, string>()
  for (const planned of waves) {
    const isBlocked = ({ needs }: PlannedCall): boolean => needs.some((id) => !results.has(id))
    const made = planned.filter((each) => !isBlocked(each))
    const blocked = planned.filter(isBlocked)
    // Calls that are made come first, since their recorded answers are found by place.
    const calls = [...made, ...blocked].map((each, index): ToolCall => {
      const args = JSON.stringify(withResults(each, results, tools.definitions))
      const id = `planned_${messages.length}_${index}`
      return { id, type: 'function', function: { name: each.tool, arguments: args } }
    })
    append({ role: 'assistant', content: null, tool_calls: calls })
    const answers = await tools.call(calls.slice(0, made.length))
    append(...answers)
    for (const [index, { needs }] of blocked.entries()) {
      const missing = andList(needs.filter((id) => !results.has(id)).map((id) => `#${id}`))
      const content = `Not made: it needs ${missing}, and there is no such result, because a call failed.`
      append({ role: 'tool', tool_call_id: calls[made.length + index]?.id ?? '', content })
    }
    for (const [index, { id }] of made.entries()) {
      const answer = toolMessage(answers[index])
      if (!tools.hasFailed(answer)) results.set(id, textOf(answer))
    }
  }
}

function toolMessage(answer: Message | undefined): Message {
  if (answer?.role === 'tool') return answer
  throw new MillraceError('agent_failed', 'plan() makes tool calls as the APIs have them: leave out the tool format')
}
