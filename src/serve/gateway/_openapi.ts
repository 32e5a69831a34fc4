import { z } from 'zod'
import type { Json, JsonObject } from '../../schema/index.ts'
import {
  canStream,
  gatewayOperations,
  namedSchemas,
  type Operation,
  type OperationReply,
} from './gateway-operations.ts'

const schemaPath = '#/components/schemas/'

/** The OpenAPI document of a gateway: every route, with what goes in and out. */
export function gatewayOpenApi(version: string): JsonObject {
  const paths: Record<string, Record<string, Json>> = {}
  for (const operation of gatewayOperations) {
    const path = (paths[operation.path] ??= {})
    path[operation.method.toLowerCase()] = describeOperation(operation)
  }
  return {
    openapi: '3.1.0',
    info: { title: 'Millrace gateway', version, description: 'Serves models to agents, and records what they say.' },
    paths,
    components: {
      schemas: componentSchemas(),
      securitySchemes: {
        bearer: { type: 'http', scheme: 'bearer' },
        apiKey: { type: 'apiKey', in: 'header', name: 'x-api-key' },
      },
    },
  }
}

function describeOperation(operation: Operation): JsonObject {
  const { summary, key, path, query, body, isBodyOptional, replies, errors } = operation
  const parameters = [...pathParameters(path), ...(query ? queryParameters(query) : [])]
  const responses = Object.entries(replies).map(([status, reply]) => [
    status,
    { description: describeStatus(Number(status)), content: contentOf(reply, canStream(operation)) },
  ])
  if (errors) responses.push(['default', { description: 'refused, or failed', content: contentOf(errors, false) }])
  return {
    summary,
    security: key === 'nobody' ? [] : [{ bearer: [] }, { apiKey: [] }],
    ...(key !== 'nobody' && { description: whoseKey[key] }),
    ...(parameters.length > 0 && { parameters }),
    ...(body && { requestBody: { required: !isBodyOptional, content: contentOf([body], false) } }),
    responses: Object.fromEntries(responses) as JsonObject,
  }
}

const whoseKey: Readonly<Record<Exclude<Operation['key'], 'nobody'>, string>> = {
  admin: 'Needs an admin key.',
  manager: 'Needs an admin key; a session’s own will do if it was started with selfManaged: true.',
  session: 'A session’s own key will do.',
}

function contentOf(reply: OperationReply, alsoEvents: boolean): JsonObject {
  if ('types' in reply) return Object.fromEntries(reply.types.map((type) => [type, {}]))
  const refs = reply.map((name) => ({ $ref: schemaPath + name }))
  const [only] = refs
  return {
    'application/json': { schema: refs.length === 1 && only ? only : { anyOf: refs } },
    ...(alsoEvents && { 'text/event-stream': { schema: { type: 'string' } } }),
  }
}

function pathParameters(path: string): Json[] {
  const named = Object.entries({ id: 'The session.', model: 'As the list names it.' })
  return named.flatMap(([name, description]) =>
    path.includes(`{${name}}`) ? [{ name, in: 'path', required: true, description, schema: { type: 'string' } }] : [],
  )
}

function queryParameters(query: z.ZodType): Json[] {
  const { properties = {}, required = [] } = z.toJSONSchema(query, { io: 'input' })
  return Object.entries(properties).map(([name, property]) => {
    const { description = '', ...schema } = property as { readonly description?: string } & JsonObject
    return { name, in: 'query', required: required.includes(name), description, schema }
  })
}

function componentSchemas(): JsonObject {
  const registry = z.registry<{ id: string }>()
  for (const [id, schema] of Object.entries(namedSchemas)) registry.add(schema, { id })
  const { schemas } = z.toJSONSchema(registry, { uri: (id) => schemaPath + id, io: 'input' })
  const documents = schemas as Record<string, JsonObject>
  return Object.fromEntries(
    Object.entries(documents).map(([id, { $schema: _schema, $id: _id, ...schema }]) => [id, schema]),
  )
}

function describeStatus(status: number): string {
  return status < 300 ? 'done' : 'not now'
}
