import type { GroupPolicy } from '../env/index.ts'
import { outcomes, type RolloutRecord } from '../schema/index.ts'
import type { RolloutTerms } from './job.ts'

/** A rollout that ended but is not settled: its group may still change its reward. */
export interface HeldRollout {
  readonly record: RolloutRecord
  readonly leaf: number | null
}

/** An ended member of a group, with its terms: a rollout that replaces it gets the same terms. */
export interface HeldMember extends HeldRollout {
  readonly terms: RolloutTerms
}

/** The rules for the attempts at one task. */
export interface GroupRules {
  readonly size: number
  readonly policy: GroupPolicy
  /** Whether the environment scores whole groups. */
  readonly isScored: boolean
}

/** Whether ended rollouts wait for their group before they are settled. */
export function holdsGroups({ size, policy, isScored }: GroupRules): boolean {
  return isScored || (size > 1 && policy !== 'keep')
}

/** What to do with a group whose last member has ended. */
export type GroupVerdict =
  | { readonly kind: 'score'; readonly members: readonly HeldMember[] }
  | { readonly kind: 'void'; readonly members: readonly HeldMember[] }
  /** Run `failed` again; the others stay held. */
  | { readonly kind: 'replace'; readonly failed: readonly HeldMember[] }

/**
 * Holds the ended members of groups until their last one ends. At most (rollouts at once) times (group size - 1) are
 * held, because a group is only open while one of its members runs.
 */
export class GroupKeeper {
  readonly #held = new Map<number, HeldMember[]>()
  readonly #size: number
  readonly #policy: GroupPolicy
  readonly #maxReplacements: number
  /** How often a member of an open group was replaced, by rollout id. */
  readonly #replaced = new Map<string, number>()

  constructor({ size, policy }: GroupRules, maxReplacements: number) {
    this.#size = size
    this.#policy = policy
    this.#maxReplacements = maxReplacements
  }

  /** Groups that wait for a member. */
  get open(): number {
    return this.#held.size
  }

  /** Earlier sittings replaced this member so often: that counts towards the limit. */
  noteReplaced(rollout: string, times: number): void {
    if (times > 0) this.#replaced.set(rollout, times)
  }

  /** Takes an ended member; returns the verdict if it was the last one of its group. */
  add(member: HeldMember): GroupVerdict | undefined {
    const { index } = member.record.task
    const members = this.#held.get(index) ?? []
    members.push(member)
    this.#held.set(index, members)
    if (members.length < this.#size) return undefined
    const failed = members.filter(({ record }) => !outcomes[record.outcome].scored)
    if (failed.length > 0 && this.#policy === 'replace') {
      if (failed.every(({ record }) => (this.#replaced.get(record.id) ?? 0) < this.#maxReplacements)) {
        for (const { record } of failed) this.#replaced.set(record.id, (this.#replaced.get(record.id) ?? 0) + 1)
        this.#held.set(
          index,
          members.filter((each) => !failed.includes(each)),
        )
        return { kind: 'replace', failed }
      }
    }
    this.#held.delete(index)
    for (const { record } of members) this.#replaced.delete(record.id)
    const inOrder = members.toSorted((one, other) => one.record.sample - other.record.sample)
    return { kind: failed.length > 0 && this.#policy !== 'keep' ? 'void' : 'score', members: inOrder }
  }
}
