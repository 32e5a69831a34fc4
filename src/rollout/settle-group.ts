import { roundedSum } from '../kit/index.ts'
import { outcomes, type RewardComponent, type RolloutRecord } from '../schema/index.ts'
import type { GroupScores } from './executor.ts'
import type { HeldRollout } from './group-keeper.ts'

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
