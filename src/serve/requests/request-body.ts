import { hash } from 'node:crypto'
import { z } from 'zod'
import { type Environment, taskName } from '../../env/index.ts'
import { MillraceError } from '../../errors/index.ts'
import { thrownBy, TimeSlice } from '../../kit/index.ts'
import { type AdvantageRule, advantageRules } from '../../rows/index.ts'
import { closedObject, describeIssues, messageSchema, safeParse, samplingSchema, validate } from '../../schema/index.ts'
import type { CodecPool } from '../codec/codec-pool.ts'
import { type DecodedBody, maxJsonDepth, recordForms, type ReplyForm, replyForms } from '../codec/rollout-json.ts'
import { type BufferedBody, parseJson } from '../http/body.ts'
import { namedSchemas } from '../http/openapi.ts'
import { rolloutStates } from './known-request.ts'
import type { RequestTerms } from './request-terms.ts'

/** A larger body is parsed elsewhere: this much takes about a millisecond. */
const maxInlineBytes = 128 * 1024

export const rolloutStateSchema = z.enum(rolloutStates)

export const recordFormSchema = z
  .enum(recordForms)
  .describe('`tokens` adds the nodes with their tokens, `tokens-base64` writes token arrays as base64.')

export const replyFormSchema = z
  .enum(replyForms)
  .describe(
    '`tokens` and `tokens-base64` add the nodes with their tokens to each record. `rows` streams rows for training as groups end, `interactions` a row for each reply: both in the binary form of docs/export.md.',
  )

export const advantageSchema = z
  .enum(advantageRules)
  .describe('With rows: how the advantage is computed from the rewards of a group. Default: none.')

export const rolloutBodySchema = closedObject({
  requestId: z
    .string()
    .exactOptional()
    .describe('1 to 128 letters, digits, `.` `_` `:` `-`. The same id names the same rollouts.'),
  task: z.unknown().optional().describe('A task of the environment. Send either `task` or `tasks`.'),
  tasks: z.array(z.unknown()).exactOptional().describe('Several tasks.'),
  attempts: z.number().exactOptional().describe('Rollouts per task. Default: the number set for the server.'),
  sampling: samplingSchema.exactOptional().describe('Overrides fields of the server’s sampling.'),
  messages: z
    .array(messageSchema)
    .min(1)
    .exactOptional()
    .describe('The conversations begin with these messages instead of the environment’s prompt.'),
  scored: z.boolean().exactOptional().describe('False: no reward is computed. Default: true.'),
  include: replyFormSchema.exactOptional(),
  advantage: advantageSchema.exactOptional(),
  detached: z.boolean().exactOptional().describe('Answers 202 at once; the rollouts run without the connection.'),
}).register(namedSchemas, { id: 'RolloutRequest' })

export interface ParsedRolloutRequest {
  readonly request: RolloutRequest
  readonly reply: ReplyOptions
}

/** How the results are to be written. */
export interface ReplyOptions {
  readonly include?: ReplyForm
  readonly advantage?: AdvantageRule
}

/** A large one is taken apart on another thread, now that all of it is here: a slow client must not keep a thread waiting. */
async function decoded(body: BufferedBody, codec: CodecPool): Promise<DecodedBody> {
  if (body.length > maxInlineBytes) return await codec.decode(body.parts)
  return { head: body.length === 0 ? undefined : parseJson(body.bytes, maxJsonDepth) }
}

/** What a body asks for. Its parts must not be used afterwards. */
export async function parseRolloutRequest(body: BufferedBody, codec: CodecPool): Promise<ParsedRolloutRequest> {
  const { head, tasks: texts, messages: opening } = await decoded(body, codec)
  const checked = safeParse(rolloutBodySchema, opening === undefined ? head : withMessages(head, opening))
  if (!checked.success) throw misfit(describeIssues(checked.error.issues))
  const { requestId, task, tasks, attempts, sampling, messages, scored, include, advantage, detached } = checked.data
  const given = texts?.map((text) => new JsonText(text)) ?? tasks ?? (task === undefined ? undefined : [task])
  if (!given || (task !== undefined && tasks)) throw misfit('give either "task" or "tasks"')
  return {
    request: {
      tasks: given,
      ...(requestId !== undefined && { requestId }),
      ...(attempts !== undefined && { attempts }),
      ...(sampling && { sampling }),
      ...(messages && { messages }),
      ...(scored === false && { scored }),
      ...(detached !== undefined && { isDetached: detached }),
    },
    reply: { ...(include && { include }), ...(advantage && { advantage }) },
  }
}

function withMessages(head: unknown, messages: string): unknown {
  return Object.assign({}, head, { messages: JSON.parse(messages) as unknown })
}

function misfit(problem: string): MillraceError {
  return new MillraceError('usage', `the request is not valid (docs/serve.md describes the fields): ${problem}`)
}

/** What is asked of a service: rollouts of one task or of many. */
export interface RolloutRequest extends RequestTerms {
  /** Said again, it means the same rollouts. Made up where the caller has none. */
  readonly requestId?: string
  /** Values, or `JsonText`. */
  readonly tasks: readonly unknown[]
  /** Rollouts per task; the service's own if not given. */
  readonly attempts?: number
  /** Its rollouts go on when nobody reads their results. */
  readonly isDetached?: boolean
}

/** A task that is still text: it is parsed when its turn comes, so that many do not hold up the loop. */
export class JsonText {
  readonly text: string

  constructor(text: string) {
    this.text = text
  }
}

const requestIdPattern = /^[\w.:-]{1,128}$/

export function checkRequest(
  { requestId, tasks, attempts, sampling, messages, scored }: RolloutRequest,
  rules: { readonly maxTasks: number; readonly groupSize: number | undefined },
): void {
  if (requestId !== undefined && !requestIdPattern.test(requestId)) {
    throw usage('requestId is 1 to 128 letters, digits or any of . _ : -')
  }
  if (tasks.length === 0) throw usage('a request needs at least one task')
  if (tasks.length > rules.maxTasks) {
    throw usage(`a request has at most ${rules.maxTasks} tasks, not ${tasks.length}; send it in parts`)
  }
  if (attempts !== undefined && !(Number.isInteger(attempts) && attempts > 0)) {
    throw usage(`attempts is a whole number above 0, not ${attempts}`)
  }
  if (messages?.length === 0) throw usage('messages needs at least one message')
  const isGrouped = rules.groupSize !== undefined && scored !== false
  if (attempts !== undefined && isGrouped && attempts !== rules.groupSize) {
    throw usage(
      `this environment scores the ${rules.groupSize} attempts at a task together; request that many, or start the server with --attempts ${attempts} (attempts)`,
    )
  }
  if (sampling === undefined) return
  const checked = safeParse(samplingSchema, sampling)
  if (!checked.success) throw usage(`sampling does not fit: ${describeIssues(checked.error.issues)}`)
}

function usage(message: string): MillraceError {
  return new MillraceError('usage', message)
}

export interface ValidatedTask {
  readonly text: string
  readonly bytes: number
  readonly digest: string
  readonly value: unknown
  readonly name: string | undefined
}

export interface ValidatedTasks {
  readonly tasks: readonly ValidatedTask[]
  readonly digest: string
  readonly bytes: number
}

const maxProblems = 5

export async function checkTasks(options: {
  readonly environment: Environment
  readonly tasks: readonly unknown[]
  readonly maxTaskBytes: number
  readonly salt: string
}): Promise<ValidatedTasks> {
  const { environment, tasks, maxTaskBytes, salt } = options
  const digests: string[] = [salt]
  const checked: ValidatedTask[] = []
  const problems: { row: number; problem: string }[] = []
  let bytes = 0
  const slice = new TimeSlice()
  for (const [row, task] of tasks.entries()) {
    const result = await checkTask(environment, task, maxTaskBytes)
    if (typeof result === 'string') {
      problems.push({ row, problem: result })
      if (problems.length === maxProblems) break
    } else {
      digests.push(result.digest)
      bytes += result.bytes
      checked.push(result)
    }
    if (slice.isOver) await slice.rest()
  }
  const [first] = problems
  if (first) {
    // A task that is alone was most likely sent as `task`.
    const nameOf = (row: number): string => (tasks.length === 1 ? 'task' : `tasks[${row}]`)
    const text = problems.map(({ row, problem }) => `${nameOf(row)}: ${problem}`).join('; ')
    throw new MillraceError('task_invalid', text, { data: { row: first.row } })
  }
  return { tasks: checked, digest: digestOf(digests.join('\n')), bytes }
}

export async function checkTask(
  environment: Environment,
  task: unknown,
  maxBytes: number,
): Promise<ValidatedTask | string> {
  let text: string | undefined
  let bytes: number
  let raw: unknown
  try {
    text = task instanceof JsonText ? task.text : JSON.stringify(task)
    if (text === undefined) return 'not JSON'
    // Before it is parsed, which takes the longer the larger it is.
    bytes = Buffer.byteLength(text)
    if (bytes > maxBytes) return `has ${bytes} bytes, and a task has at most ${maxBytes}`
    raw = task instanceof JsonText ? JSON.parse(text) : task
  } catch (error) {
    return `not JSON: ${MillraceError.from(error, 'internal').rawMessage}`
  }
  const validated = await validate(environment.task, raw)
  if (validated.problem !== undefined) return validated.problem
  const { value } = validated
  try {
    return { text, bytes, digest: digestOf(text), value, name: taskName(environment, value) }
  } catch (error) {
    return thrownBy('taskId', error, 'task_invalid').rawMessage
  }
}

function digestOf(text: string): string {
  return hash('sha256', text, 'hex').slice(0, 32)
}
