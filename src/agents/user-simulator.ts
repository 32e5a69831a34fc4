import type { Agent, AgentContext, Budget } from '../env/index.ts'
import { checkOptions, wholeNumber } from '../env/index.ts'
import { MillraceError } from '../errors/index.ts'
import { type FinishReason, isJsonObject, type Message, textOf } from '../schema/index.ts'
import { aside } from './children.ts'
import { requireWhole, withoutThoughts } from './replies.ts'
import { toolLoop } from './tool-loop.ts'
import { agentSchema, requireNames, textSchema, watching } from './watching.ts'

export interface UserSimulatorOptions {
  /** The model that plays the user; the run's model if not given. */
  readonly model?: string
  /** Who the user is and what the user wants. */
  readonly persona?: string
  /** The field of a task that says so instead. */
  readonly personaField?: string
  /** How often the policy answers at most; 10 if not given. */
  readonly turns?: number
  /** The word with which the user ends the conversation; `###STOP###` if not given. */
  readonly stop?: string
  /** Answers the user; the standard agent if not given. */
  readonly agent?: Agent
}

const optionShape = {
  model: textSchema('the name of a model').optional(),
  persona: textSchema('a text').optional(),
  personaField: textSchema('the name of a field').optional(),
  turns: wholeNumber(1).optional(),
  stop: textSchema('a word').optional(),
  agent: agentSchema.optional(),
}

/**
 * A second model plays the user. If the prompt has a message of the user, the policy speaks first; else the user does. The
 * user's side is a child with the roles turned round: it sees what is said to it, and neither instructions nor tools of the
 * policy. Its last message stays in the conversation, with the word that ended it.
 */
export function userSimulator(options: UserSimulatorOptions = {}): Agent {
  checkOptions('userSimulator()', optionShape, options)
  const { turns = 10, stop = '###STOP###', agent = toolLoop() } = options
  return async (context) => {
    requireNames(context, 'userSimulator()', { model: options.model })
    const role = instructions(personaOf(context.task, options), stop)
    const watched = watching(context)
    let isUsersTurn = !context.messages.some((message) => message.role === 'user')
    for (let turn = 0; turn < turns; turn += 1) {
      if (isUsersTurn) {
        const said = await userSays(context, role, options.model)
        // A user who says nothing has left.
        if (said === '') return
        context.append({ role: 'user', content: said })
        if (said.includes(stop)) return
      }
      await agent(watched.context)
      if (watched.hasEnded()) return
      isUsersTurn = true
    }
  }
}

function personaOf(task: unknown, { persona, personaField }: UserSimulatorOptions): string | undefined {
  if (personaField === undefined) return persona
  const found = isJsonObject(task) ? task[personaField] : undefined
  if (typeof found === 'string') return found
  throw new MillraceError(
    'env_invalid',
    `userSimulator(): the task has no text in its field ${personaField} (personaField)`,
  )
}

function instructions(persona: string | undefined, stop: string): string {
  const who = persona ?? 'Somebody who wants what the first message of the user asks for.'
  return `You play the user in a conversation with an assistant. Write only what the user says next, briefly and in the user's own words. Never answer for the assistant, and never do its work. Say what you want bit by bit, and answer its questions as the user would.

<persona>
${who}
</persona>

When you have got what you want, or it is clear that you will not, reply with ${stop}`
}

async function userSays({ child, messages }: AgentContext, role: string, model: string | undefined): Promise<string> {
  const prompt: readonly Message[] = [{ role: 'system', content: role }, ...fromTheUsersSide(messages)]
  return await aside(child, { prompt, ...(model !== undefined && { model }) }, async ({ turn, budget }) => {
    const { message, finishReason } = await turn()
    requireWholeUser(finishReason, budget)
    return withoutThoughts(textOf(message))
  })
}

/** Half a sentence must not be taken as said, nor a cut thought as leaving. The policy has no part in it, unless the rollout's tokens are used up. */
function requireWholeUser(finishReason: FinishReason, { tokensLeft }: Budget): void {
  if (finishReason !== 'length' && finishReason !== 'content_filter') return
  if (tokensLeft === 0) requireWhole(finishReason)
  const why = finishReason === 'length' ? 'reached its length limit' : 'was withheld by a content filter'
  throw new MillraceError('model_truncated', `the reply of the simulated user ${why}`)
}

/** What is said between the two, with the roles turned round. It begins with a greeting: many chat templates want a user first. */
function fromTheUsersSide(messages: readonly Message[]): readonly Message[] {
  const turned: { role: 'user' | 'assistant'; content: string }[] = [
    { role: 'user', content: 'Hello, how can I help you?' },
  ]
  for (const message of messages) {
    if (message.role !== 'user' && message.role !== 'assistant') continue
    const said = withoutThoughts(textOf(message))
    const role = message.role === 'user' ? 'assistant' : 'user'
    const last = turned.at(-1)
    if (said === '') continue
    // What the policy says between its tool calls is one turn of the conversation.
    if (last?.role === role && turned.length > 1) last.content += `\n\n${said}`
    else turned.push({ role, content: said })
  }
  if (turned.at(-1)?.role === 'assistant') turned.push({ role: 'user', content: '…' })
  return turned
}
