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

/** A limit that is misspelt would be none. Throws `env_invalid`. */
export function checkChildRequest({ limits = {}, sampling = {}, ...rest }: ChildRequest): void {
  const unknown =
    unknownField(rest, Object.keys(requestNames)) ??
    unknownField(limits, Object.keys(limitNames), 'limits.') ??
    unknownField(sampling, Object.keys(samplingSchema.shape), 'sampling.')
  if (unknown !== undefined) throw new MillraceError('env_invalid', `child(): ${unknown}`)
}
