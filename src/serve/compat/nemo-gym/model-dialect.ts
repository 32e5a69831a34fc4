import {
  type BackendReply,
  type DialectError,
  type DialectRequest,
  newReplyId,
  type ServerDialect,
} from '../../../apis/index.ts'
import { MillraceError } from '../../../errors/index.ts'
import { plainNumbers } from '../../../kit/index.ts'
import { fieldsInMetadata } from '../../../nemo-gym/index.ts'
import { completeTokens } from '../../../rows/index.ts'
import { emptyUsage, type JsonObject } from '../../../schema/index.ts'
import { invalidJson, type Refused } from '../fastapi/wire-errors.ts'

type Document = Record<string, unknown>

/** The model that a request gets which names none, or one that is not known. */
type NameModel = (name: unknown) => string | undefined

/**
 * An API as NeMo Gym's model servers have it: the server chooses the model, fields for the backend are in the metadata, a reply of
 * Responses has its tokens, and a conversation that is too long ends instead of failing. For one request.
 */
export function gymDialect(base: ServerDialect, nameModel: NameModel): ServerDialect {
  let asked: DialectRequest | undefined
  return {
    ...base,
    missingFields: (body) => missingFields(body, nameModel),
    read(body, before) {
      const request = base.read(body, before)
      asked = base.api === 'responses' ? withoutMetadata(request) : request
      return asked
    },
    whole(head, reply) {
      const document = base.whole(head, reply)
      return base.api === 'responses' ? withTokens(document, reply) : document
    },
    error(error) {
      // A client that waits for a stream is told, and agents with clients of their own then shorten the conversation.
      if (error.code !== 'context_length' || !asked || asked.stream) return gymError(base.error(error), error)
      const head = { id: newReplyId(base.api), model: asked.model, createdAt: nowSeconds(), request: asked }
      return { status: 200, headers: {}, body: base.whole(head, fullContext) }
    },
  }
}

const fullContext: BackendReply = {
  message: { role: 'assistant', content: '' },
  finishReason: 'length',
  usage: emptyUsage(),
}

function missingFields(body: JsonObject, nameModel: NameModel): JsonObject {
  const model = nameModel(body['model'])
  const inMetadata = Object.entries(metadataFields(body)).filter(([name]) => !Object.hasOwn(body, name))
  const missing = Object.fromEntries(inMetadata)
  return model === undefined || model === body['model'] ? missing : { ...missing, model }
}

function metadataFields({ metadata }: JsonObject): JsonObject {
  try {
    return fieldsInMetadata(metadata)
  } catch (error) {
    const { rawMessage } = MillraceError.from(error, 'usage')
    throw new MillraceError('model_rejected', rawMessage, { data: { status: 400, param: 'metadata' }, cause: error })
  }
}

/** The tokens of a reply are read again for a client that repeats its request. Metadata is for this server alone. */
function withoutMetadata(request: DialectRequest): DialectRequest {
  const { metadata: _ours, ...extra } = request.sampling.extra ?? {}
  return { ...request, wantsTokenIds: true, sampling: { ...request.sampling, extra } }
}

/** The reply with the three fields that trainers look for, on its last item. They are there together, or not at all. */
function withTokens(document: Document, { tokens, usage }: BackendReply): Document {
  const complete = tokens && completeTokens({ tokens }, usage)
  const output = document['output']
  if (!complete || !complete.logprobs.every(Number.isFinite) || !Array.isArray(output)) return document
  const last: object = output.at(-1) ?? {}
  const fields = {
    prompt_token_ids: plainNumbers(complete.promptIds),
    generation_token_ids: plainNumbers(complete.ids),
    generation_log_probs: plainNumbers(complete.logprobs),
  }
  return { ...document, output: [...output.slice(0, -1), { ...last, ...fields }] }
}

/** The error with a `detail`, in which NeMo Gym's clients look. A request that cannot be read is refused with 422. */
function gymError({ status, headers, body }: DialectError, error: MillraceError): DialectError {
  const { message = '' } = body['error'] as { readonly message?: string }
  const isOfClient = status === 400 && typeof error.data['backend'] !== 'string'
  if (!isOfClient) return { status, headers, body: { ...body, detail: message } }
  return { status: 422, headers, body: { ...body, detail: [refused(message, error)] } }
}

function refused(msg: string, { data, cause }: MillraceError): Refused {
  if (cause instanceof SyntaxError) return invalidJson(cause.message)
  return { type: 'value_error', loc: ['body', ...locationOf(data['param'])], msg, input: null }
}

/** `input[2].content` as FastAPI writes it. A kind may follow after a space. */
function locationOf(param: unknown): (string | number)[] {
  if (typeof param !== 'string') return []
  const [place = ''] = param.split(' ', 1)
  const names = place.split(/[.[\]]+/).filter((name) => name !== '')
  return names.map((name) => (/^\d+$/.test(name) ? Number(name) : name))
}

function nowSeconds(): number {
  return Math.floor(Date.now() / 1000)
}
