import type { FastifyRequest } from 'fastify'
import { z } from 'zod'
import { MillraceError } from '../errors/index.ts'
import { describeIssues } from '../schema/index.ts'

const defaultPage = 100
const maxPage = 1_000

/** What every list of a server takes in its query. */
export const pageSchemas = {
  cursor: z.string().exactOptional().describe('The `cursor` of the page before.'),
  limit: z.coerce.number().int().min(1).max(maxPage).default(defaultPage).describe('How many at most.'),
}

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
