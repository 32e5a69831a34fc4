import type { FastifyRequest } from 'fastify'
import { z } from 'zod'
import { MillraceError } from '../errors/index.ts'
import { describeIssues } from '../schema/index.ts'

export function parseQuery<Schema extends z.ZodType>(schema: Schema, request: FastifyRequest): z.output<Schema> {
  const checked = schema.safeParse(request.query)
  if (checked.success) return checked.data
  const { issues } = checked.error
  const isMisspelt = schema instanceof z.ZodObject && issues.some(({ code }) => code === 'unrecognized_keys')
  const known = isMisspelt ? `; known are ${Object.keys(schema.shape).join(', ')}` : ''
  throw new MillraceError('usage', `the query does not fit: ${describeIssues(issues)}${known}`)
}

/** Whether the client would rather have a line per result. */
export function wantsLines({ headers }: FastifyRequest): boolean {
  return headers.accept?.includes('application/x-ndjson') ?? false
}
