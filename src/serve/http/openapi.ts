import { z } from 'zod'
import { jsonSchema, type Json, type JsonObject } from '../../schema/index.ts'
import type { RegisteredRoute } from './routes.ts'

declare module 'fastify' {
  interface FastifyContextConfig {
    api?: ApiRoute
  }
}

/** Our own routes have schemas. A route that follows the API of a vendor refers to the vendor's documentation instead. */
export interface ApiRoute {
  readonly summary: string
  readonly key?: string
  readonly query?: z.ZodType
  readonly body?: z.ZodType
  readonly isBodyOptional?: true
  /** By status: JSON of a schema, bodies of other types, or either. */
  readonly replies?: Readonly<Record<number, RouteReply>>
  readonly vendorDocs?: string
}

type RouteReply = z.ZodType | { readonly types: readonly string[]; readonly json?: z.ZodType }

export interface ApiInfo {
  readonly title: string
  readonly description: string
  readonly securitySchemes: Readonly<Record<string, JsonObject>>
  readonly parameters: Readonly<Record<string, string>>
}

/** The schemas that have a name in a document. Every body and reply is one of them. */
export const namedSchemas = z.registry<{ id: string }>()

const errorSchema = z
  .strictObject({
    error: z.strictObject({
      code: z.string(),
      message: z.string(),
      data: z.record(z.string(), z.union([z.string(), z.number(), z.boolean(), z.null()])).exactOptional(),
    }),
  })
  .register(namedSchemas, { id: 'Error' })

// It refers to itself, so it needs a name.
namedSchemas.add(jsonSchema, { id: 'Json' })

const schemaPath = '#/components/schemas/'

export function openApiDocument(routes: readonly RegisteredRoute[], info: ApiInfo, version: string): JsonObject {
  const paths: Record<string, Record<string, Json>> = {}
  for (const { method, url, config } of routes) {
    if (method === 'HEAD' || !config?.api) continue
    // The name of a model may have slashes in it, which OpenAPI cannot express.
    const path = url.replaceAll(/:(\w+)/g, '{$1}').replace(/\*$/, '{model}')
    const operations = (paths[path] ??= {})
    operations[method.toLowerCase()] = describeRoute(path, config.api, info)
  }
  const { title, description, securitySchemes } = info
  return {
    openapi: '3.1.0',
    info: { title, version, description },
    paths,
    components: { schemas: usedSchemas(paths), securitySchemes },
  }
}

function describeRoute(path: string, route: ApiRoute, { securitySchemes, parameters: named }: ApiInfo): JsonObject {
  const { summary, key, query, body, isBodyOptional, vendorDocs } = route
  const parameters = [...pathParameters(path, named), ...(query ? queryParameters(query) : [])]
  return {
    summary,
    security: key === undefined ? [] : Object.keys(securitySchemes).map((name) => ({ [name]: [] })),
    ...(key !== undefined && { description: key }),
    ...(parameters.length > 0 && { parameters }),
    ...(body && { requestBody: { required: !isBodyOptional, content: contentOf(body) } }),
    ...(vendorDocs !== undefined && { externalDocs: { url: vendorDocs } }),
    responses: responsesOf(route),
  }
}

function responsesOf({ key, replies = {}, vendorDocs }: ApiRoute): JsonObject {
  if (vendorDocs !== undefined) return { default: { description: `as ${vendorDocs} says` } }
  const responses = Object.entries(replies).map(([status, reply]): [string, JsonObject] => [
    status,
    { description: Number(status) < 300 ? 'done' : 'not available now', content: contentOf(reply) },
  ])
  if (key !== undefined) {
    responses.push(['default', { description: 'refused, or failed', content: contentOf(errorSchema) }])
  }
  return Object.fromEntries(responses)
}

function contentOf(reply: RouteReply): JsonObject {
  const { types, json } = reply instanceof z.ZodType ? { types: [], json: reply } : reply
  return {
    ...(json && { 'application/json': { schema: { $ref: schemaPath + idOf(json) } } }),
    ...Object.fromEntries(types.map((type) => [type, {}])),
  }
}

function idOf(schema: z.ZodType): string {
  const named = namedSchemas.get(schema)
  if (!named) throw new TypeError('a body or reply of the API has no name; register its schema')
  return named.id
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

function usedSchemas(paths: JsonObject): JsonObject {
  const { schemas } = z.toJSONSchema(namedSchemas, { uri: (id) => schemaPath + id, io: 'input' })
  const documents = schemas as Record<string, JsonObject>
  const used: Record<string, JsonObject> = {}
  const collect = (document: Json): void => {
    for (const [, id = ''] of JSON.stringify(document).matchAll(/"\$ref":"#\/components\/schemas\/([^"]+)"/g)) {
      const known = documents[id]
      if (id in used || !known) continue
      const { $schema: _schema, $id: _id, ...schema } = known
      used[id] = schema
      collect(schema)
    }
  }
  collect(paths)
  return used
}
