import type { FastifyRequest } from 'fastify'
import type { z } from 'zod'
import { MillraceError } from '../errors/index.ts'
import { describeIssues } from '../schema/index.ts'

export function parseQuery<Schema extends z.ZodType>(schema: Schema, request: FastifyRequest): z.output<Schema> {
  requireValues(request.query as Readonly<Record<string, unknown>>)
  const checked = schema.safeParse(request.query)
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

/** Whether the client would rather have a line per result. */
export function wantsLines({ headers }: FastifyRequest): boolean {
  return headers.accept?.includes('application/x-ndjson') ?? false
}
