import type { ChildRequest } from '../env/index.ts'
import { MillraceError } from '../errors/index.ts'
import { unknownField } from '../kit/index.ts'
import { samplingSchema } from '../schema/index.ts'
import { briefValue, isMessageList, requestProblem } from './request-problem.ts'

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

/** Refuses, with `env_invalid`, a request that says something else than its author meant. */
export function checkChildRequest(request: ChildRequest): void {
  const problem = requestProblem(request, requestNames) ?? fieldProblem(request)
  if (problem !== undefined) throw new MillraceError('env_invalid', `child(): ${problem}`)
}

/** A limit that is misspelt, or is no number, would limit nothing. */
function fieldProblem({ prompt, limits = {}, sampling = {} }: ChildRequest): string | undefined {
  if (typeof prompt !== 'string' && !isMessageList(prompt)) {
    return `\`prompt\` must be a text or a list of messages, not ${briefValue(prompt)}`
  }
  const unknown =
    unknownField(limits, Object.keys(limitNames), 'limits.') ??
    unknownField(sampling, Object.keys(samplingSchema.shape), 'sampling.')
  if (unknown !== undefined) return unknown
  const wrong = Object.entries<unknown>(limits).find(([, limit]) => limit !== undefined && !isNumber(limit))
  return wrong && `\`limits.${wrong[0]}\` must be a number, not ${briefValue(wrong[1])}`
}

function isNumber(value: unknown): boolean {
  return typeof value === 'number' && !Number.isNaN(value)
}
