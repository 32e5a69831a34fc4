import type { IncomingMessage } from 'node:http'
import { z } from 'zod'
import { MillraceError } from '../errors/index.ts'
import { closedObject, describeIssues, samplingSchema } from '../schema/index.ts'
import { parseJson } from './_parse-json.ts'
import { recordForms, type DecodedBody, type RecordForm } from './codec-messages.ts'
import type { CodecPool } from './codec-pool.ts'
import { JsonText, type RolloutRequest } from './rollout-request.ts'

/** A larger body is parsed elsewhere: this much takes about a millisecond. */
const maxInlineBytes = 128 * 1024

export const recordFormSchema = z.enum(recordForms)

const bodySchema = closedObject({
  requestId: z.string().exactOptional(),
  task: z.unknown().optional(),
  tasks: z.array(z.unknown()).exactOptional(),
  attempts: z.number().exactOptional(),
  sampling: samplingSchema.exactOptional(),
  include: recordFormSchema.exactOptional(),
  detached: z.boolean().exactOptional(),
})

/** What `POST /v1/rollouts` asks for. */
export interface PostedRequest {
  readonly request: RolloutRequest
  readonly form: RecordForm
}

/** The value of a small body, or a large one taken apart on another thread; undefined if there is none. */
export async function readBody(request: IncomingMessage, length: number, codec: CodecPool): Promise<unknown> {
  if (length === 0) return undefined
  // Gathered here, because a slow client must not keep a thread waiting.
  const body = await gather(request, length)
  return length > maxInlineBytes ? new LargeBody(await codec.decode(body)) : parseJson(body)
}

/**
 * In one piece of memory, which can change threads as a whole: what a socket is read into is shared. By events, because what
 * iterates over a stream stays with it, and the request waits for its rollout.
 */
function gather(request: IncomingMessage, length: number): Promise<Uint8Array<ArrayBuffer>> {
  return new Promise((resolve, reject) => {
    const body = new Uint8Array(length)
    let at = 0
    const onData = (part: Uint8Array): void => {
      body.set(part, at)
      at += part.length
    }
    const onEnd = (): void => {
      stopListening()
      resolve(body)
    }
    const onClose = (): void => {
      stopListening()
      // Nobody hears it, but it is no fault of ours.
      reject(new MillraceError('usage', `the client left after ${at} of ${length} bytes of its body`))
    }
    const stopListening = (): void => {
      request.off('data', onData).off('end', onEnd).off('close', onClose)
    }
    request.on('data', onData).on('end', onEnd).on('close', onClose)
    // It has left already, and will not do so again.
    if (request.destroyed) onClose()
  })
}

class LargeBody {
  readonly decoded: DecodedBody

  constructor(decoded: DecodedBody) {
    this.decoded = decoded
  }
}

export function postedRequest(body: unknown): PostedRequest {
  const { head, tasks: texts } = body instanceof LargeBody ? body.decoded : { head: body, tasks: undefined }
  const checked = bodySchema.safeParse(head)
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
