import type { Message, Outcome } from '../../schema/index.ts'

/** The findings of a replay of one rollout. */
export interface ReplayReport {
  readonly rollout: string
  readonly attempt: number
  /** Null if the rollout is unreadable. */
  readonly outcome: Outcome | null
  /** `skipped`: there is nothing to run again. `unreadable`: the rollout is damaged. `why` says more. */
  readonly verdict: 'identical' | 'different' | 'skipped' | 'unreadable'
  /** What kept the replay from reaching its end, or from starting. */
  readonly why?: string
  /** Messages that were compared, children's included. */
  readonly messages: number
  readonly children: {
    readonly replayed: number
    /** Children that did not run again, as their tools were answered from the recording. */
    readonly kept: number
  }
  /** At most `maxDifferences` of them; `omitted` says how many more there are. */
  readonly differences: readonly Difference[]
  readonly omitted: number
  /** The first message that is not as it was recorded. */
  readonly first?: MessageDifference
  /** What may explain a difference. */
  readonly hints: readonly string[]
}

export const maxDifferences = 50

export interface Difference {
  /** The session's id. */
  readonly session: string
  /** `message 3 (tool)`, `reward`, `usage`. */
  readonly what: string
  /** A short form of the value, or of its first field that differs, as `output: 12`; null if there is none. */
  readonly recorded: string | null
  readonly replayed: string | null
}

export interface MessageDifference {
  readonly session: string
  readonly seq: number
  readonly recorded: Message | null
  readonly replayed: Message | null
}
