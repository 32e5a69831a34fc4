import type { FastifyInstance, FastifyRequest } from 'fastify'
import { chatServer, messagesServer, type ServerDialect } from '../../dialects/index.ts'
import { MillraceError } from '../../errors/index.ts'
import type { Gateway, OfferedModel } from '../../gateway/index.ts'
import { callerFrom, unauthorized } from './_callers.ts'
import { isFault } from './_is-fault.ts'

interface ListedModels {
  Params: { id?: string }
}

interface OneModel {
  Params: { id?: string; '*': string }
}

export interface ModelListParts {
  readonly gateway: Gateway
  readonly onFault: ((error: MillraceError) => void) | undefined
}

/** The models that there are, below the root and below each session. All is said in the words of the client's API. */
export function modelListRoutes(app: FastifyInstance, { gateway, onFault }: ModelListParts): void {
  app.setErrorHandler(async (thrown, request, reply) => {
    const error = MillraceError.from(thrown, 'internal')
    const { status, headers, body } = shapeFor(request).dialect.error(error)
    if (isFault(error, status)) onFault?.(error)
    return await reply.code(status).headers(headers).send(body)
  })
  const requireAccess = ({ headers, params }: FastifyRequest<ListedModels>): void => {
    const caller = callerFrom(gateway, headers)
    if (!caller) throw unauthorized(headers)
    // A session that nobody knows, or that is another's, has no models either.
    if (params.id !== undefined) gateway.requireSession(caller, params.id)
  }
  const config = { dialectFor: (request: Pick<FastifyRequest, 'headers'>) => shapeFor(request).dialect }
  for (const path of ['/v1/models', '/sessions/:id/v1/models']) {
    app.get<ListedModels>(path, { config }, async (request, reply) => {
      requireAccess(request)
      return await reply.send(shapeFor(request).list(gateway.models()))
    })
    // Names have slashes in them, and not every client escapes those.
    app.get<OneModel>(`${path}/*`, { config }, async (request, reply) => {
      requireAccess(request)
      return await reply.send(shapeFor(request).one(gateway.model(request.params['*'])))
    })
  }
}

interface ModelShape {
  readonly dialect: ServerDialect
  readonly one: (model: OfferedModel) => object
  readonly list: (models: readonly OfferedModel[]) => object
}

function shapeFor({ headers }: Pick<FastifyRequest, 'headers'>): ModelShape {
  return headers['anthropic-version'] === undefined ? openAi : anthropic
}

/** Nobody knows when a model was made; clients want a date all the same. */
const unknownDate = new Date(0)

const openAi: ModelShape = {
  dialect: chatServer,
  one: ({ id, contextLength }) => ({
    id,
    object: 'model',
    created: unknownDate.getTime() / 1000,
    owned_by: 'millrace',
    ...(contextLength !== undefined && { max_model_len: contextLength }),
  }),
  list: (models) => ({ object: 'list', data: models.map(openAi.one) }),
}

const anthropic: ModelShape = {
  dialect: messagesServer,
  one: ({ id, contextLength }) => ({
    type: 'model',
    id,
    display_name: id,
    created_at: unknownDate.toISOString(),
    ...(contextLength !== undefined && { max_input_tokens: contextLength }),
  }),
  list: (models) => ({
    data: models.map(anthropic.one),
    has_more: false,
    first_id: models[0]?.id ?? null,
    last_id: models.at(-1)?.id ?? null,
  }),
}
