import type { FastifyInstance, FastifyRequest } from 'fastify'
import { MillraceError } from '../../../errors/index.ts'
import type { BodyIntake } from '../../http/body.ts'
import { bodyOf } from './json-body.ts'
import type { ArealWire } from './areal-wire.ts'
import { type Tensor, tensorPieces } from './tensors.ts'
import { describedAs } from './route-config.ts'
import { parsedBody, shardIdsSchema } from './wire-schemas.ts'

interface DataRouteParts {
  readonly wire: ArealWire
  readonly intake: BodyIntake
}

interface OneShard {
  Params: { shard: string }
}

const tensorKey = 'Needs an admin key, or the name that the address of a tensor begins with.'
const binary = 'application/octet-stream'

/** Tensors that exports refer to. The bodies are JSON, whatever their type says, as AReaL's clients expect it. */
export function dataRoutes(app: FastifyInstance, { wire, intake }: DataRouteParts): void {
  const shardIds = async (request: FastifyRequest): Promise<string[] | undefined> => {
    using body = await intake.read(request.raw)
    try {
      return parsedBody(body.bytes, shardIdsSchema).shard_ids
    } catch (error) {
      if (MillraceError.from(error, 'internal').data['status'] !== 422) throw error
      return undefined
    }
  }

  app.get<OneShard>('/data/:shard', describedAs('One tensor.', tensorKey), async (request, reply) => {
    const tenant = wire.tensorTenant(request.headers)
    const { shard } = request.params
    const tensor = wire.shards.get(tenant, shard)
    if (!tensor) return await reply.code(404).send({ status: 'error', message: `Shard ${shard} not found` })
    return await reply.type(binary).send(bodyOf(tensorPieces(tensor)))
  })

  app.post('/data/batch', describedAs('Several tensors.', tensorKey), async (request, reply) => {
    const tenant = wire.tensorTenant(request.headers)
    const ids = await shardIds(request)
    if (!ids) {
      const message = "Expected JSON body with string list field 'shard_ids'"
      return await reply.code(400).send({ status: 'error', message })
    }
    const found = ids.map((id) => wire.shards.get(tenant, id))
    const missing = ids.filter((_id, index) => found[index] === undefined)
    if (missing.length === 0) return await reply.type(binary).send(bodyOf(listPieces(found as Tensor[])))
    const message = 'One or more requested shards were not found'
    return await reply.code(400).send({ status: 'error', message, missing_shard_ids: missing })
  })

  app.delete('/data/clear', describedAs('Forgets tensors.', tensorKey), async (request, reply) => {
    const tenant = wire.tensorTenant(request.headers)
    const ids = await shardIds(request)
    if (!ids) return await reply.code(400).send({ status: 'error', message: "'shard_ids' must be a list" })
    const cleared = wire.shards.clear(tenant, ids)
    return await reply.send({ status: 'ok', cleared_count: cleared, ...wire.shards.figures })
  })
}

function* listPieces(tensors: readonly Tensor[]): Generator<string, void, void> {
  yield '['
  for (const [index, tensor] of tensors.entries()) {
    if (index > 0) yield ','
    yield* tensorPieces(tensor)
  }
  yield ']'
}
