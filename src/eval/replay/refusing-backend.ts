import { MillraceError } from '../../errors/index.ts'
import type { Backend } from '../../inference/index.ts'

/** Stands in for every backend of a replay: nothing is ever asked, and if it were, this would say so. */
export const refusingBackend: Backend = {
  name: 'recording',
  send: () => Promise.reject(new MillraceError('replay_diverged', 'a model was to be asked, and a replay asks none')),
  [Symbol.asyncDispose]: () => Promise.resolve(),
}
