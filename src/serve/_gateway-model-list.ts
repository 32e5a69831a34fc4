import type { FastifyInstance, FastifyRequest } from 'fastify'
import { MillraceError } from '../errors/index.ts'
import type { Gateway, OfferedModel } from '../gateway/index.ts'

interface OneModel {
  Params: { model: string }
}

/** The models that there are, below the root and below each session. */
export function modelListRoutes(app: FastifyInstance, gateway: Gateway): void {
  for (const path of ['/v1/models', '/sessions/:id/v1/models']) {
    app.get(path, async (request, reply) => {
      return await reply.send(shapeFor(request).list(gateway.models()))
    })
    app.get<OneModel>(`${path}/:model`, async (request, reply) => {
      const { model: name } = request.params
      const found = gateway.models().find(({ id }) => id === name)
      if (found) return await reply.send(shapeFor(request).one(found))
      const message = `there is no model "${name.slice(0, 80)}" here; GET /v1/models lists them`
      throw new MillraceError('model_not_found', message, { data: { status: 404, param: 'model' } })
    })
  }
}

interface ModelShape {
  readonly one: (model: OfferedModel) => object
  readonly list: (models: readonly OfferedModel[]) => object
}

function shapeFor({ headers }: Pick<FastifyRequest, 'headers'>): ModelShape {
  return headers['anthropic-version'] === undefined ? openAi : anthropic
}

/** Nobody knows when a model was made; clients want a date all the same. */
const unknownDate = new Date(0)

const openAi: ModelShape = {
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
