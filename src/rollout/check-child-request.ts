import { inspect } from 'node:util'
import type { ChildRequest } from '../env/index.ts'
import { MillraceError } from '../errors/index.ts'
import { unknownField } from '../kit/index.ts'
import { samplingSchema } from '../schema/index.ts'

const requestNames: Readonly<Record<keyof ChildRequest, true>> = {
  prompt: true,
  tools: true,
  agent: true,
  model: true,
  sampling: true,
  limits: true,
}

const limitNames: Readonly<Record<keyof NonNullable<ChildRequest['limits']>, true>> = {
  maxTurns: true,
  maxTokens: true,
  timeoutMs: true,
}

/** A limit that is misspelt, or no number, would be none. Throws `env_invalid`. */
export function checkChildRequest({ limits = {}, sampling = {}, ...rest }: ChildRequest): void {
  const unknown =
    unknownField(rest, Object.keys(requestNames)) ??
    unknownField(limits, Object.keys(limitNames), 'limits.') ??
    unknownField(sampling, Object.keys(samplingSchema.shape), 'sampling.')
  if (unknown !== undefined) throw new MillraceError('env_invalid', `child(): ${unknown}`)
  for (const [name, limit] of Object.entries<unknown>(limits)) {
    if (limit === undefined || (typeof limit === 'number' && !Number.isNaN(limit))) continue
    throw new MillraceError(
      'env_invalid',
      `child(): \`limits.${name}\` must be a number, not ${inspect(limit, { depth: 0 })}`,
    )
  }
}
