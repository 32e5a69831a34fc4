import type { FastifyInstance, FastifyReply, FastifyRequest, RouteOptions } from 'fastify'
import { z } from 'zod'
import { MillraceError } from '../../errors/index.ts'
import { andList } from '../../kit/index.ts'
import { describeIssues, safeParse } from '../../schema/index.ts'
import { type HttpErrorCode, refuse } from './errors.ts'

export interface RegisteredRoute {
  readonly method: string
  /** As fastify has it: `/v1/sessions/:id`. */
  readonly url: string
  readonly config: RouteOptions['config']
}

export interface UnknownRoute {
  readonly code: Extract<HttpErrorCode, 'not_found' | 'method_not_allowed'>
  readonly message: string
  readonly beside: readonly RegisteredRoute[]
}

export class RouteRegistry {
  readonly #routes: RegisteredRoute[] = []

  constructor(app: FastifyInstance) {
    app.addHook('onRoute', ({ method, url, config }) => {
      for (const each of [method].flat()) this.#routes.push({ method: each, url, config })
    })
  }

  get all(): readonly RegisteredRoute[] {
    return this.#routes
  }

  /** Each as `GET /v1/sessions/{id}`, without the HEAD that comes with every GET. */
  get names(): string[] {
    return this.#routes
      .filter(({ method }) => method !== 'HEAD')
      .map(({ method, url }) => `${method} ${url.replaceAll(/:(\w+)/g, '{$1}')}`)
  }

  at(path: string): RegisteredRoute[] {
    const parts = path.split('/')
    return this.#routes.filter(({ url }) => isAt(url.split('/'), parts))
  }

  /** The names that a path to a route may end with, after the same beginning. */
  endings(method: string, path: string): string[] {
    const beginning = path.split('/').slice(0, -1)
    return this.#routes.flatMap((route) => {
      const parts = route.url.split('/')
      const ending = parts.pop() ?? ''
      // A parameter and a `*` are no names.
      return route.method === method && /^\w/.test(ending) && isAt(parts, beginning) ? [ending] : []
    })
  }

  /** `hint` has the next step for a path that nothing is at. */
  unrouted({ method, url }: FastifyRequest, hint: (path: string) => string): UnknownRoute {
    const [path = ''] = url.split('?', 1)
    const beside = this.at(path)
    const taken = beside.map((route) => route.method).filter((name) => name !== 'HEAD')
    const next = beside.length > 0 ? `it takes ${andList(taken.toSorted())}` : hint(path)
    const code = beside.length > 0 ? 'method_not_allowed' : 'not_found'
    return { code, message: `there is no ${method} ${path}; ${next}`, beside }
  }
}

export function setAllowHeader(reply: FastifyReply, { beside }: UnknownRoute): void {
  if (beside.length > 0)
    reply.header(
      'allow',
      beside
        .map(({ method }) => method)
        .toSorted()
        .join(', '),
    )
}

export function refuseUnrouted(reply: FastifyReply, unrouted: UnknownRoute): FastifyReply {
  setAllowHeader(reply, unrouted)
  return refuse(reply, unrouted.code, unrouted.message)
}

function isAt(pattern: readonly string[], parts: readonly string[]): boolean {
  // What a `*` stands for may have slashes in it.
  const isOpen = pattern.at(-1) === '*'
  const fixed = isOpen ? pattern.slice(0, -1) : pattern
  const isLongEnough = isOpen ? parts.length > fixed.length : parts.length === fixed.length
  return (
    isLongEnough && fixed.every((part, index) => part === parts[index] || (part.startsWith(':') && parts[index] !== ''))
  )
}

const defaultPage = 100
const maxPage = 1_000

export const pageSchemas = {
  cursor: z.string().exactOptional().describe('The `cursor` of the previous page.'),
  limit: z.coerce.number().int().min(1).max(maxPage).default(defaultPage).describe('The maximum number of entries.'),
}

export function parseQuery<Schema extends z.ZodType>(schema: Schema, request: FastifyRequest): z.output<Schema> {
  requireValues(request.query as Readonly<Record<string, unknown>>)
  const checked = safeParse(schema, request.query)
  if (checked.success) return checked.data
  throw new MillraceError('usage', `the query does not fit: ${describeIssues(checked.error.issues, request.query)}`)
}

/** An unset variable in somebody's shell leaves a name without a value, which as a number would be 0. */
function requireValues(query: Readonly<Record<string, unknown>>): void {
  for (const [name, value] of Object.entries(query)) {
    if (typeof value !== 'string' || value.trim() !== '') continue
    throw new MillraceError('usage', `the query has ${name} without a value; leave it out, or give it one`)
  }
}

export function wantsLines({ headers }: FastifyRequest): boolean {
  return headers.accept?.includes('application/x-ndjson') ?? false
}
