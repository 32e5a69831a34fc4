import { MillraceError } from '../errors/index.ts'

/** A request that is not valid: `param` is the place in the body, `must` goes on with the sentence. */
export function rejected(param: string, must: string): MillraceError {
  return new MillraceError('model_rejected', `${param} ${must}`, { data: { status: 400, param } })
}
