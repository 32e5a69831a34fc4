import type { RunFile } from '../store/index.ts'

/** Calls of models, and the requests that they took. */
export interface SentTries {
  readonly calls: number
  readonly tries: number
}

export function sumOfTries(parts: readonly SentTries[]): SentTries {
  return {
    calls: parts.reduce((sum, { calls }) => sum + calls, 0),
    tries: parts.reduce((sum, { tries }) => sum + tries, 0),
  }
}

/** Of all sittings of a run. What one that was cut off had sent nobody knows. */
export function triesOfRun({ sittings }: RunFile): SentTries {
  return sumOfTries(sittings.flatMap(({ sent }) => sent ?? []))
}
