import type { FastifyInstance, FastifyRequest } from 'fastify'
import { z } from 'zod'
import type { Metrics } from '../../telemetry/index.ts'
import type { RouteRegistry } from './routes.ts'
import { namedSchemas, openApiDocument, type ApiInfo } from './openapi.ts'

export type Readiness = { readonly isReady: true } | { readonly isReady: false; readonly why: string }

/** Paths that need no key: a probe has none. */
export const openPaths: ReadonlySet<string> = new Set(['/health', '/ready'])

const health = z.strictObject({ status: z.literal('ok') }).register(namedSchemas, { id: 'Health' })
const ready = z.strictObject({ status: z.literal('ready') }).register(namedSchemas, { id: 'Ready' })
const notReady = z
  .strictObject({ status: z.literal('not ready'), why: z.string() })
  .register(namedSchemas, { id: 'NotReady' })

export function healthRoutes(app: FastifyInstance, ...paths: readonly string[]): void {
  const config = { api: { summary: 'Whether the process is alive.', replies: { 200: health } } }
  for (const path of paths) app.get(path, { config }, async (_request, reply) => await reply.send({ status: 'ok' }))
}

export function readyRoute(app: FastifyInstance, summary: string, readiness: () => Readiness): void {
  const config = { api: { summary, replies: { 200: ready, 503: notReady } } }
  app.get('/ready', { config }, async (_request, reply) => {
    const found = readiness()
    if (found.isReady) return await reply.send({ status: 'ready' })
    return await reply.code(503).send({ status: 'not ready', why: found.why })
  })
}

export interface StatusRoutesOptions {
  readonly metrics: Metrics
  readonly requireMetricsAccess?: (request: FastifyRequest) => void
  readonly metricsKey: string
  readonly documentKey: string
  readonly routes: RouteRegistry
  readonly info: ApiInfo
  readonly version: string
}

export function statusRoutes(app: FastifyInstance, description: StatusRoutesOptions): void {
  const { metrics, requireMetricsAccess, metricsKey, documentKey, routes, info, version } = description
  const prometheus = { summary: 'Prometheus text.', key: metricsKey, replies: { 200: { types: ['text/plain'] } } }
  app.get('/metrics', { config: { api: prometheus } }, async (request, reply) => {
    requireMetricsAccess?.(request)
    return await reply.type(metrics.contentType).send(await metrics.text())
  })

  const json = { summary: 'This document.', key: documentKey, replies: { 200: { types: ['application/json'] } } }
  let document: string | undefined
  app.get('/openapi.json', { config: { api: json } }, async (_request, reply) => {
    document ??= JSON.stringify(openApiDocument(routes.all, info, version))
    return await reply.type('application/json').send(document)
  })
}
