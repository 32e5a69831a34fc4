import { MillraceError } from '../errors/index.ts'

/** The error for an invalid request: `param` is the place in the body, and `must` completes the sentence. */
export function rejected(param: string, must: string): MillraceError {
  return new MillraceError('model_rejected', `${param} ${must}`, { data: { status: 400, param } })
}
