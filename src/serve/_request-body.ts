import { z } from 'zod'
import { MillraceError } from '../errors/index.ts'
import { closedObject, describeIssues, samplingSchema } from '../schema/index.ts'
import type { HeldBody } from './_body-intake.ts'
import { parseJson } from './_parse-json.ts'
import { recordForms, type DecodedBody, type RecordForm } from './codec-messages.ts'
import type { CodecPool } from './codec-pool.ts'
import { rolloutStates } from './known-request.ts'
import { maxJsonDepth } from './serve-bounds.ts'
import { JsonText, type RolloutRequest } from './rollout-request.ts'

/** A larger body is parsed elsewhere: this much takes about a millisecond. */
const maxInlineBytes = 128 * 1024

export const rolloutStateSchema = z.enum(rolloutStates)

export const recordFormSchema = z
  .enum(recordForms)
  .describe('`tokens` adds the nodes with their tokens, `tokens-base64` writes token arrays as base64.')

export const rolloutBodySchema = closedObject({
  requestId: z
    .string()
    .exactOptional()
    .describe('1 to 128 letters, digits, `.` `_` `:` `-`. The same id stands for the same rollouts.'),
  task: z.unknown().optional().describe('A task of the environment. Send either `task` or `tasks`.'),
  tasks: z.array(z.unknown()).exactOptional().describe('Several tasks.'),
  attempts: z.number().exactOptional().describe('Rollouts per task. Default: that of the server.'),
  sampling: samplingSchema.exactOptional().describe('Replaces fields of the sampling of the server.'),
  include: recordFormSchema.exactOptional(),
  detached: z.boolean().exactOptional().describe('Answers 202 at once; the rollouts belong to no connection.'),
})

/** What `POST /v1/rollouts` asks for. */
export interface PostedRequest {
  readonly request: RolloutRequest
  readonly form: RecordForm
}

/** A large one is taken apart on another thread, now that all of it is here: a slow client must not keep a thread waiting. */
async function decoded(body: HeldBody, codec: CodecPool): Promise<DecodedBody> {
  if (body.length > maxInlineBytes) return await codec.decode(body.parts)
  return { head: body.length === 0 ? undefined : parseJson(body.bytes, maxJsonDepth), tasks: undefined }
}

/** What a body asks for. Its parts must not be used afterwards. */
export async function postedRequest(body: HeldBody, codec: CodecPool): Promise<PostedRequest> {
  const { head, tasks: texts } = await decoded(body, codec)
  const checked = rolloutBodySchema.safeParse(head)
  if (!checked.success) throw usage(describeIssues(checked.error.issues))
  const { requestId, task, tasks, attempts, sampling, include, detached } = checked.data
  const given = texts?.map((text) => new JsonText(text)) ?? tasks ?? (task === undefined ? undefined : [task])
  if (!given || (task !== undefined && tasks)) throw usage('give either "task" or "tasks"')
  return {
    request: {
      tasks: given,
      ...(requestId !== undefined && { requestId }),
      ...(attempts !== undefined && { attempts }),
      ...(sampling && { sampling }),
      ...(detached !== undefined && { isDetached: detached }),
    },
    form: include ?? 'record',
  }
}

function usage(problem: string): MillraceError {
  return new MillraceError('usage', `the request does not fit (docs/serve.md shows what does): ${problem}`)
}
