import type { Json, Message, Outcome } from '../schema/index.ts'

/** One rollout of a group as a group reward sees it: a plain value, whichever worker ran it. */
export interface GroupMember {
  readonly id: string
  readonly sample: number
  readonly outcome: Outcome
  readonly truncated: boolean
  readonly answer: string
  readonly messages: readonly Message[]
  readonly scores: Readonly<Record<string, number>>
  readonly info: Readonly<Record<string, Json>>
}

/**
 * The effect of a failed member on its group. `keep`: the others are scored without it. `replace`: it runs again, as a new
 * attempt, until its tries are used up; then as with `void`. `void`: no member of the group gets a reward.
 */
export type GroupPolicy = 'keep' | 'replace' | 'void'
