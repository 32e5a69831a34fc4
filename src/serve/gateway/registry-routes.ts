import type { FastifyInstance, FastifyRequest } from 'fastify'
import { z } from 'zod'
import type { Gateway } from '../../gateway/index.ts'
import { closedObject } from '../../schema/index.ts'
import { type BodyIntake, jsonBody } from '../http/body.ts'
import { namedSchemas } from '../http/openapi.ts'
import type { GatewayBounds } from './gateway-config.ts'
import type { Registry } from './registry.ts'
import { keys } from './session-schemas.ts'

const registrationFields = {
  url: z.string().min(1).describe('Up to and including the version: http://gpu-1:8000/v1.'),
  model: z.string().min(1).exactOptional().describe('The model that it serves. Default: all that it lists.'),
  api: z.enum(['chat', 'responses', 'messages']).exactOptional(),
  engine: z.enum(['vllm', 'sglang']).exactOptional().describe('Default: what it is found to be.'),
  apiKey: z.string().min(1).exactOptional().describe('Its key. It is not kept over a restart.'),
}

const maxBackends = 1024

const registerSchema = z
  .union([
    closedObject(registrationFields),
    closedObject({ backends: z.array(closedObject(registrationFields)).min(1).max(maxBackends) }),
  ])
  .register(namedSchemas, { id: 'RegisterBackends' })

const registeredSchema = z
  .strictObject({
    ok: z.boolean().describe('Whether all of them were registered: else the status is 502.'),
    backends: z.array(
      z.strictObject({
        url: z.string(),
        ok: z.boolean(),
        id: z.string().exactOptional(),
        models: z.array(z.string()).exactOptional(),
        error: z.string().exactOptional(),
      }),
    ),
  })
  .register(namedSchemas, { id: 'RegisteredBackends' })

const newKeySchema = closedObject({ tenant: z.string().min(1).max(256) }).register(namedSchemas, { id: 'NewKey' })

const keyFields = { id: z.string(), tenant: z.string(), createdAt: z.number() }
const issuedSchema = z
  .strictObject({ ...keyFields, key: z.string().describe('Shown once: only its digest is kept.') })
  .register(namedSchemas, { id: 'IssuedKey' })
const keyListSchema = z
  .strictObject({ keys: z.array(z.strictObject({ ...keyFields, digest: z.string() })) })
  .register(namedSchemas, { id: 'Keys' })
const removedSchema = z.strictObject({ removed: z.string() }).register(namedSchemas, { id: 'Removed' })

interface RegistryRouteParts {
  readonly gateway: Gateway
  readonly registry: Registry
  readonly intake: BodyIntake
  readonly bounds: Pick<GatewayBounds, 'maxJsonDepth'>
  readonly requireOperator: (request: FastifyRequest) => void
}

export function registryRoutes(app: FastifyInstance, parts: RegistryRouteParts): void {
  const { gateway, registry, intake, bounds, requireOperator } = parts
  const key = keys.admin
  const maxDepth = bounds.maxJsonDepth
  const register = {
    summary: 'Registers backends: one, or several. Again, it changes nothing but a key.',
    key,
    body: registerSchema,
    replies: { 200: registeredSchema, 502: registeredSchema },
  }
  app.post('/v1/backends', { config: { api: register } }, async (request, reply) => {
    requireOperator(request)
    const body = await jsonBody(request.raw, intake, { schema: registerSchema, maxDepth })
    const backends = await registry.register('backends' in body ? body.backends : [body], gateway.closedSignal)
    const ok = backends.every((backend) => backend.ok)
    return await reply.code(ok ? 200 : 502).send({ ok, backends })
  })

  const unregister = {
    summary: 'Removes a registered backend, when requests on their way to it have ended.',
    key,
    replies: { 200: removedSchema },
  }
  app.delete<{ Params: { backend: string } }>(
    '/v1/backends/:backend',
    { config: { api: unregister } },
    async (request, reply) => {
      requireOperator(request)
      await registry.remove(request.params.backend)
      return await reply.send({ removed: request.params.backend })
    },
  )

  const list = { summary: 'The admin keys that were issued here.', key, replies: { 200: keyListSchema } }
  app.get('/v1/keys', { config: { api: list } }, async (request, reply) => {
    requireOperator(request)
    return await reply.send({ keys: gateway.keys.issued })
  })

  const issue = {
    summary: 'Issues an admin key for a tenant.',
    key,
    body: newKeySchema,
    replies: { 201: issuedSchema },
  }
  app.post('/v1/keys', { config: { api: issue } }, async (request, reply) => {
    requireOperator(request)
    const { tenant } = await jsonBody(request.raw, intake, { schema: newKeySchema, maxDepth })
    const { digest: _digest, ...issued } = gateway.keys.issue(tenant)
    registry.save()
    return await reply.code(201).send(issued)
  })

  const revoke = { summary: 'Revokes a key that was issued here.', key, replies: { 200: removedSchema } }
  app.delete<{ Params: { key: string } }>('/v1/keys/:key', { config: { api: revoke } }, async (request, reply) => {
    requireOperator(request)
    gateway.keys.revoke(request.params.key)
    registry.save()
    return await reply.send({ removed: request.params.key })
  })
}
