import type { IncomingMessage } from 'node:http'
import type { z } from 'zod'
import { MillraceError } from '../errors/index.ts'
import { describeIssues } from '../schema/index.ts'
import type { BodyIntake } from './_body-intake.ts'
import { parseJson } from './_parse-json.ts'

export interface JsonBodyRules<Schema extends z.ZodType> {
  readonly schema: Schema
  readonly maxDepth: number
}

/** The checked body of a small request; `{}` if there is none. */
export async function jsonBody<Schema extends z.ZodType>(
  request: IncomingMessage,
  intake: BodyIntake,
  { schema, maxDepth }: JsonBodyRules<Schema>,
): Promise<z.output<Schema>> {
  using body = await intake.whole(request)
  const checked = schema.safeParse(body.length === 0 ? {} : parseJson(body.bytes, maxDepth))
  if (checked.success) return checked.data
  throw new MillraceError('usage', `the body does not fit: ${describeIssues(checked.error.issues)}`)
}
