import { channel } from 'node:diagnostics_channel'

/** An error in a worker that nobody handled, such as a rejected promise that no rollout awaits. */
export interface StrayError {
  readonly message: string
  /** `file:line` in the user's code, where it can be told. */
  readonly place?: string
}

/** The channel on which stray errors are published, on the main thread; the rollouts go on. */
export const strayErrors = channel('millrace:stray-error')
