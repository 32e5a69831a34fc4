import { z } from 'zod'
import type { ChildRequest, JudgeRequest, Update } from '../../env/index.ts'
import { MillraceError } from '../../errors/index.ts'
import {
  closedObject,
  describeIssues,
  isJsonObject,
  type Message,
  safeParse,
  samplingSchema,
} from '../../schema/index.ts'

// Where an environment's code runs there are no types: a misspelt field would be ignored in silence.

const anything = z.unknown().optional()
const messageList = z.array(z.looseObject({}), 'expected a list of messages')
const limit = z
  .custom<number>((value) => typeof value === 'number' && !Number.isNaN(value), 'expected a number')
  .optional()

const childRequestSchema = closedObject({
  prompt: z.union([z.string(), messageList], 'expected a text or a list of messages'),
  tools: anything,
  agent: anything,
  model: anything,
  sampling: closedObject(
    Object.fromEntries(Object.keys(samplingSchema.shape).map((name) => [name, anything])),
  ).optional(),
  limits: closedObject({ maxTurns: limit, maxTokens: limit, timeoutMs: limit }).optional(),
  alongside: anything,
} satisfies Record<keyof ChildRequest, z.ZodType>)

const judgeRequestSchema = closedObject({
  messages: messageList,
  model: anything,
  temperature: anything,
  maxTokens: anything,
} satisfies Record<keyof JudgeRequest, z.ZodType>)

const updateSchema = closedObject({
  messages: messageList.optional(),
  end: anything,
} satisfies Record<keyof Exclude<Update, void>, z.ZodType>)

/** Refuses, with `env_invalid`, a request that says something else than its author meant. */
export function checkChildRequest(request: ChildRequest): void {
  const problem = problemWith(childRequestSchema, request)
  if (problem !== undefined) throw new MillraceError('env_invalid', `child(): ${problem}`)
}

/** Throws `env_invalid`: a backend would be asked again and again, and blamed. */
export function checkJudgeRequest(request: JudgeRequest): void {
  const problem = problemWith(judgeRequestSchema, request)
  if (problem === undefined) return
  // Two things have that name, and a rubric is what the other one takes.
  const advice =
    "a context's judge takes { messages, … } and resolves to a message; judge({ rubric }) of millrace is a reward"
  throw new MillraceError('env_invalid', `judge(): ${problem}; ${advice}`)
}

/** Checks what `update` returned: a misspelt `end` would not end anything. Throws `agent_failed`. */
export function checkUpdate(update: unknown): Update {
  if (update === undefined || update === null) return undefined
  if (!isJsonObject(update)) {
    // `false` too: it may come of `isFound && { end: true }`, and it may be meant to end the rollout.
    const found = typeof update === 'boolean' ? update : `a value of type ${typeof update}`
    throw new MillraceError(
      'agent_failed',
      `update: it must return nothing or { messages, end }, not ${found}: { end: true } ends the rollout, { messages } continues it, and undefined continues it if the reply had tool calls`,
    )
  }
  const problem = problemWith(updateSchema, update)
  if (problem !== undefined) throw new MillraceError('agent_failed', `update: ${problem}`)
  return update
}

export function requireContext(given: unknown): asserts given is readonly Message[] {
  const problem = problemWith(messageList, given)
  if (problem !== undefined) throw new MillraceError('agent_failed', `contextPolicy: ${problem}`)
}

function problemWith(schema: z.ZodType, value: unknown): string | undefined {
  const { error } = safeParse(schema, value)
  return error && describeIssues(error.issues, value)
}
