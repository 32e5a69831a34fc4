import type { FastifyInstance } from 'fastify'
import { z } from 'zod'
import { jsonSchema, type Json, type JsonObject } from '../schema/index.ts'

/** A route of an API: its purpose, who may use it, what goes in and out. */
export interface Operation<Name extends string = string, Key extends string = string> {
  readonly method: 'GET' | 'POST' | 'PUT' | 'DELETE'
  /** With parameters as `{id}`. */
  readonly path: string
  readonly summary: string
  /** Which key the route asks for; `nobody`: none. */
  readonly key: Key | 'nobody'
  readonly query?: z.ZodType
  readonly body?: Name
  readonly isBodyOptional?: true
  /** Whether the reply may also come as a stream of events. */
  readonly isStreamed?: true
  /** By status. */
  readonly replies: Readonly<Record<number, OperationReply<Name>>>
  /** The shapes of refusals. */
  readonly errors?: readonly Name[]
}

/** JSON of one of these shapes, or bodies of other types, or either. */
export type OperationReply<Name extends string> =
  | readonly Name[]
  | { readonly types: readonly string[]; readonly json?: readonly Name[] }

/** What an OpenAPI document says of an API. */
export interface ApiDescription<Name extends string, Key extends string> {
  readonly title: string
  readonly description: string
  readonly operations: readonly Operation<Name, Key>[]
  /** Every schema with a name. */
  readonly schemas: Readonly<Record<Name, z.ZodType>>
  /** What each kind of key is. */
  readonly keys: Readonly<Record<Key, string>>
  /** The ways to send a key, as OpenAPI's security schemes. */
  readonly securitySchemes: Readonly<Record<string, JsonObject>>
  /** What each parameter of a path is. */
  readonly parameters: Readonly<Record<string, string>>
}

/** The schemas that all our HTTP servers share. */
export const sharedSchemas = {
  Json: jsonSchema,
  Error: z.strictObject({
    error: z.strictObject({
      code: z.string(),
      message: z.string(),
      data: z.record(z.string(), z.union([z.string(), z.number(), z.boolean(), z.null()])).exactOptional(),
    }),
  }),
  Health: z.strictObject({ status: z.literal('ok') }),
  Ready: z.strictObject({ status: z.literal('ready') }),
  NotReady: z.strictObject({ status: z.literal('not ready'), why: z.string() }),
} as const satisfies Record<string, z.ZodType>

const schemaPath = '#/components/schemas/'

/** `GET /openapi.json`. The document is made when it is first asked for. */
export function openApiRoute<Name extends string, Key extends string>(
  app: FastifyInstance,
  api: ApiDescription<Name, Key>,
  version: string,
): void {
  let document: string | undefined
  app.get('/openapi.json', async (_request, reply) => {
    document ??= JSON.stringify(openApiDocument(api, version))
    return await reply.type('application/json').send(document)
  })
}

/** The OpenAPI document of an API: every route, with what goes in and out. */
function openApiDocument<Name extends string, Key extends string>(
  api: ApiDescription<Name, Key>,
  version: string,
): JsonObject {
  const { title, description, securitySchemes } = api
  const paths: Record<string, Record<string, Json>> = {}
  for (const operation of api.operations) {
    const path = (paths[operation.path] ??= {})
    path[operation.method.toLowerCase()] = describeOperation(operation, api)
  }
  return {
    openapi: '3.1.0',
    info: { title, version, description },
    paths,
    components: { schemas: componentSchemas(api.schemas), securitySchemes },
  }
}

function describeOperation<Name extends string, Key extends string>(
  operation: Operation<Name, Key>,
  { keys, securitySchemes, parameters: named }: ApiDescription<Name, Key>,
): JsonObject {
  const { summary, key, path, query, body, isBodyOptional, isStreamed = false, replies, errors } = operation
  const parameters = [...pathParameters(path, named), ...(query ? queryParameters(query) : [])]
  const responses = Object.entries(replies).map(([status, reply]) => [
    status,
    { description: describeStatus(Number(status)), content: contentOf(reply, isStreamed) },
  ])
  if (errors) responses.push(['default', { description: 'refused, or failed', content: contentOf(errors, false) }])
  return {
    summary,
    security: key === 'nobody' ? [] : Object.keys(securitySchemes).map((name) => ({ [name]: [] })),
    ...(key !== 'nobody' && { description: keys[key] }),
    ...(parameters.length > 0 && { parameters }),
    ...(body && { requestBody: { required: !isBodyOptional, content: contentOf([body], false) } }),
    responses: Object.fromEntries(responses) as JsonObject,
  }
}

function contentOf(reply: OperationReply<string>, alsoEvents: boolean): JsonObject {
  const { types = [], json = [] } = 'types' in reply ? reply : { json: reply }
  const refs = json.map((name) => ({ $ref: schemaPath + name }))
  const [only] = refs
  return {
    ...(only && { 'application/json': { schema: refs.length === 1 ? only : { anyOf: refs } } }),
    ...(alsoEvents && { 'text/event-stream': { schema: { type: 'string' } } }),
    ...Object.fromEntries(types.map((type) => [type, {}])),
  }
}

function pathParameters(path: string, named: Readonly<Record<string, string>>): Json[] {
  return Object.entries(named).flatMap(([name, description]) =>
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

function componentSchemas(named: Readonly<Record<string, z.ZodType>>): JsonObject {
  const registry = z.registry<{ id: string }>()
  for (const [id, schema] of Object.entries(named)) registry.add(schema, { id })
  const { schemas } = z.toJSONSchema(registry, { uri: (id) => schemaPath + id, io: 'input' })
  const documents = schemas as Record<string, JsonObject>
  return Object.fromEntries(
    Object.entries(documents).map(([id, { $schema: _schema, $id: _id, ...schema }]) => [id, schema]),
  )
}

function describeStatus(status: number): string {
  return status < 300 ? 'done' : 'not now'
}
