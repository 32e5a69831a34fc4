import type { FastifyInstance } from 'fastify'
import { MillraceError } from '../../errors/index.ts'
import type { MetricsHub } from '../../telemetry/index.ts'
import { adminOf } from './_callers.ts'
import { openApiRoute } from '../_openapi.ts'
import { gatewayApi } from './gateway-operations.ts'

export interface StatusRouteParts {
  readonly metrics: MetricsHub
  /** Whose admins may read them; every admin if not given. */
  readonly metricsTenant?: string
  readonly version: string
}

/** What there is, and how it is doing. */
export function statusRoutes(app: FastifyInstance, { metrics, metricsTenant, version }: StatusRouteParts): void {
  app.get('/metrics', async (request, reply) => {
    const { tenant } = adminOf(request)
    if (metricsTenant !== undefined && tenant !== metricsTenant) {
      const message = `the metrics are those of all tenants together: ask with an admin key of tenant ${metricsTenant}, as MILLRACE_ADMIN_KEY is`
      throw new MillraceError('usage', message, { data: { status: 403 } })
    }
    return await reply.type(metrics.contentType).send(await metrics.text())
  })

  openApiRoute(app, gatewayApi, version)
}
