import type { FastifyInstance, FastifyReply, FastifyRequest, RouteOptions } from 'fastify'
import { andList } from '../kit/index.ts'
import { refuse, type DoorCode } from './_door-error.ts'

export interface KnownRoute {
  readonly method: string
  /** As fastify has it: `/v1/sessions/:id`. */
  readonly url: string
  readonly config: RouteOptions['config']
}

/** Why a request came to no route. */
export interface Unrouted {
  readonly code: Extract<DoorCode, 'not_found' | 'method_not_allowed'>
  readonly message: string
  /** Those at its path, which take other methods. */
  readonly beside: readonly KnownRoute[]
}

/** The routes of a door, as fastify is told of them. */
export class KnownRoutes {
  readonly #routes: KnownRoute[] = []

  /** Hears of those that are added from now on. */
  constructor(app: FastifyInstance) {
    app.addHook('onRoute', ({ method, url, config }) => {
      for (const each of [method].flat()) this.#routes.push({ method: each, url, config })
    })
  }

  /** Each as `GET /v1/sessions/{id}`, without the HEAD that comes with every GET. */
  get names(): string[] {
    return this.#routes
      .filter(({ method }) => method !== 'HEAD')
      .map(({ method, url }) => `${method} ${url.replaceAll(/:(\w+)/g, '{$1}')}`)
  }

  /** Those at a path, whatever they take. */
  at(path: string): KnownRoute[] {
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
  unrouted({ method, url }: FastifyRequest, hint: (path: string) => string): Unrouted {
    const [path = ''] = url.split('?', 1)
    const beside = this.at(path)
    const taken = beside.map((route) => route.method).filter((name) => name !== 'HEAD')
    const next = beside.length > 0 ? `it takes ${andList(taken.toSorted())}` : hint(path)
    const code = beside.length > 0 ? 'method_not_allowed' : 'not_found'
    return { code, message: `there is no ${method} ${path}; ${next}`, beside }
  }
}

/** Names the methods that the path takes, if there are any. */
export function allowOthers(reply: FastifyReply, { beside }: Unrouted): void {
  if (beside.length > 0)
    reply.header(
      'allow',
      beside
        .map(({ method }) => method)
        .toSorted()
        .join(', '),
    )
}

export function refuseUnrouted(reply: FastifyReply, unrouted: Unrouted): FastifyReply {
  allowOthers(reply, unrouted)
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
