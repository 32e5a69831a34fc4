import type { GroupPolicy } from '../../env/index.ts'
import { roundedSum } from '../../kit/index.ts'
import { outcomes, type RewardComponent, type RolloutRecord } from '../../schema/index.ts'
import type { GroupScores, RolloutTerms } from './executor.ts'
import type { HeldRollout } from './journal-entries.ts'

/** An ended member of a group, with its terms: a rollout that replaces it gets the same terms. */
export interface HeldMember extends HeldRollout {
  readonly terms: RolloutTerms
}

export interface GroupRules {
  readonly size: number
  readonly policy: GroupPolicy
  readonly isScored: boolean
}

/** Whether ended rollouts wait for their group before they are settled. */
export function waitsForGroups({ size, policy, isScored }: GroupRules): boolean {
  return isScored || (size > 1 && policy !== 'keep')
}

type GroupDecision =
  | { readonly kind: 'score' | 'void'; readonly members: readonly HeldMember[] }
  | { readonly kind: 'replace'; readonly failed: readonly HeldMember[] }

/** Holds ended members until their group is whole: at most (rollouts at once) times (group size - 1). */
export class GroupCollector {
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

  get open(): number {
    return this.#held.size
  }

  /** Earlier launches replaced this member so often: that counts towards the limit. */
  noteReplaced(rollout: string, times: number): void {
    if (times > 0) this.#replaced.set(rollout, times)
  }

  /** Takes an ended member; returns the decision if it was the last one of its group. */
  add(member: HeldMember): GroupDecision | undefined {
    const { index } = member.record.task
    const members = this.#held.get(index) ?? []
    members.push(member)
    this.#held.set(index, members)
    if (members.length < this.#size) return undefined
    const failed = members.filter(({ record }) => !outcomes[record.outcome].scored)
    const timesReplaced = ({ record }: HeldMember): number => this.#replaced.get(record.id) ?? 0
    const mayReplace = this.#policy === 'replace' && failed.length > 0
    if (mayReplace && failed.every((each) => timesReplaced(each) < this.#maxReplacements)) {
      for (const each of failed) this.#replaced.set(each.record.id, timesReplaced(each) + 1)
      const others = members.filter((each) => !failed.includes(each))
      this.#held.set(index, others)
      return { kind: 'replace', failed }
    }
    this.#held.delete(index)
    for (const { record } of members) this.#replaced.delete(record.id)
    const inOrder = members.toSorted((one, other) => one.record.sample - other.record.sample)
    return { kind: failed.length > 0 && this.#policy !== 'keep' ? 'void' : 'score', members: inOrder }
  }
}

/** Adds the group components to each member's own. Applying the scores twice gives the same reward. */
export function applyGroupScores(records: readonly RolloutRecord[], scores: GroupScores): void {
  for (const record of records) {
    Object.assign(record.rewards, scores[record.id])
    record.reward = totalReward(record.rewards)
  }
}

export function totalReward(rewards: Readonly<Record<string, RewardComponent>>): number {
  return roundedSum(Object.values(rewards).reduce((sum, { score, weight }) => sum + score * weight, 0))
}

/** Takes the reward from every member, and marks it as voided; each member's scores stay visible in its components. */
export function voidGroup(members: readonly HeldRollout[]): void {
  for (const { record } of members) {
    if (!outcomes[record.outcome].scored) continue
    record.reward = null
    record.voided = true
  }
}
