import { MillraceError } from '../../errors/index.ts'
import type { Backend } from '../../inference/index.ts'

/** Replaces every backend of a replay, which asks no model: a request is an error. */
export const refusingBackend: Backend = {
  name: 'recording',
  send: () => Promise.reject(new MillraceError('replay_diverged', 'a model was to be asked, and a replay asks none')),
  [Symbol.asyncDispose]: () => Promise.resolve(),
}
