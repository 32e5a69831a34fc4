import { responsesServer } from '../../../apis/index.ts'
import { MillraceError } from '../../../errors/index.ts'
import { isJsonObject } from '../../../kit/index.ts'
import { completeParams, hasPlace, ownFields } from '../../../nemo-gym/index.ts'
import type { Conversation } from '../../../rollout/index.ts'
import { type JsonObject, type Message, textOf, type Outcome } from '../../../schema/index.ts'
import { missing, plainBody, refusal } from '../fastapi/wire-errors.ts'

/** A row as `/seed_session` gets it. Crosses threads. */
export interface SeededRow {
  /** JSON of the row's own fields, and of these with `responses_create_params`. */
  readonly own: string
  readonly whole: string
  /** Where it stands in a collection, if it says so. */
  readonly place?: string
}

/** A row as `/verify` gets it. Crosses threads. */
export interface VerifiedRow extends SeededRow {
  readonly conversation: Conversation
  /** Of all fields. */
  readonly names: readonly string[]
}

/** Throws what is wrong with the body. */
export function readSeededRow(body: Uint8Array): SeededRow {
  return tasksOf(plainBody(body))
}

/** The same. */
export function readVerifiedRow(body: Uint8Array): VerifiedRow {
  const row = plainBody(body)
  return { conversation: conversationOf(row), ...tasksOf(row), names: Object.keys(row) }
}

function tasksOf(row: JsonObject): SeededRow {
  const own = ownFields(row)
  const { responses_create_params: params, _ng_task_index: task, _ng_rollout_index: rollout } = row
  const whole = { responses_create_params: completeParams(isJsonObject(params) ? params : {}), ...own }
  const place = hasPlace(row) ? JSON.stringify([task, rollout]) : undefined
  return { own: JSON.stringify(own), whole: JSON.stringify(whole), ...(place !== undefined && { place }) }
}

/** The conversation that a verify request describes: what the row gave, and then the output of the response. */
function conversationOf(row: JsonObject): Conversation {
  const { responses_create_params: params, response } = row
  if (!isJsonObject(params)) throw missing(['body', 'responses_create_params'], row)
  if (!isJsonObject(response)) throw missing(['body', 'response'], row)
  const { output } = response
  if (!Array.isArray(output)) throw missing(['body', 'response', 'output'], response)
  const { input, instructions } = params
  const given = Array.isArray(input) ? input : [{ role: 'user', content: input ?? '' }]
  const request = { model: 'policy', instructions: instructions ?? null, input: [...given, ...output] }
  const messages = messagesOf(request, given.length)
  const last = messages.findLast(({ role }) => role === 'assistant')
  return { messages, answer: last ? textOf(last) : null, outcome: outcomeOf(response, messages) }
}

/** Items from number `given` on are those of the response. */
function messagesOf(request: JsonObject, given: number): readonly Message[] {
  try {
    return responsesServer.read(request, { backendApi: 'chat' }).messages
  } catch (error) {
    const { rawMessage } = MillraceError.from(error, 'usage')
    const msg = rawMessage.replace(/\binput\[(\d+)\]/, (place, index: string) =>
      Number(index) < given ? place : `response.output[${Number(index) - given}]`,
    )
    throw refusal({ type: 'value_error', loc: ['body', 'response'], msg, input: null })
  }
}

/** How the agent ended, as far as its response says. */
function outcomeOf({ incomplete_details: incomplete }: JsonObject, messages: readonly Message[]): Outcome {
  if (isJsonObject(incomplete)) return 'max_tokens'
  return messages.at(-1)?.role === 'tool' ? 'max_turns' : 'completed'
}
