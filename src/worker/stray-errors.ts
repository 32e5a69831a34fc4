import { channel } from 'node:diagnostics_channel'

/** A promise that was rejected on a rollout thread, in code that belongs to no rollout, and that nobody handled. */
export interface StrayError {
  readonly message: string
  /** `file:line` in the user's code, where it can be told. */
  readonly place?: string
}

/** Where a process learns of them; the rollouts go on. Published on the main thread, as a `StrayError`. */
export const strayErrors = channel('millrace:stray-error')
