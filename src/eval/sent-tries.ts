import type { RunFile } from '../store/index.ts'

/** How many calls of models were made, and how many requests they took. */
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

/** The tries of all sittings of a run. Those of a sitting that was cut off are not known, and not counted. */
export function triesOfRun({ sittings }: RunFile): SentTries {
  return sumOfTries(sittings.flatMap(({ sent }) => sent ?? []))
}
