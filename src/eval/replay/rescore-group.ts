import { groupRewardNames, hasGroupReward, ownRewardNames, type Environment } from '../../env/index.ts'
import { MillraceError } from '../../errors/index.ts'
import {
  agentOutcomeOf,
  applyGroupScores,
  failedReward,
  totalReward,
  voidGroup,
  type GroupScores,
} from '../../rollout/index.ts'
import { outcomes, type RolloutRecord } from '../../schema/index.ts'

/** Scores a group together, or voids it, as the run that made its members did. Changes the records. */
export async function rescoreGroup(
  members: readonly RolloutRecord[],
  environment: Environment,
  score: (scored: readonly RolloutRecord[]) => Promise<GroupScores>,
): Promise<void> {
  const scored = members.filter(({ outcome }) => outcomes[outcome].scored)
  if (scored.length < members.length && (environment.groupPolicy ?? 'keep') !== 'keep') {
    voidGroup(members.map((record) => ({ record, leaf: null })))
    return
  }
  if (scored.length === 0 || !hasGroupReward(environment)) return
  try {
    applyGroupScores(scored, await score(scored))
  } catch (thrown) {
    const error = MillraceError.from(thrown, 'reward_failed').toWire()
    for (const record of scored) Object.assign(record, failedReward(record, error))
  }
}

/** Fails the rewards of a group with an unreadable member: nobody can tell what the others are worth. Changes the records. */
export function failGroup(members: readonly RolloutRecord[], unreadable: string): void {
  const message = `its group cannot be scored again: its rollout ${unreadable} cannot be read`
  const error = new MillraceError('store_failed', message).toWire()
  for (const record of members) {
    if (outcomes[record.outcome].scored) Object.assign(record, failedReward(record, error))
  }
}

export function settlesGroups(environment: Environment): boolean {
  return hasGroupReward(environment) || (environment.groupPolicy ?? 'keep') !== 'keep'
}

export function beforeGroupScoring(record: RolloutRecord, environment: Environment): RolloutRecord {
  const ofGroup = new Set(groupRewardNames(environment))
  const rewards = Object.fromEntries(Object.entries(record.rewards).filter(([name]) => !ofGroup.has(name)))
  if (!failedWithGroup(record, environment)) return { ...record, rewards }
  const { error: _error, agentOutcome: _agentOutcome, ...rest } = record
  const outcome = agentOutcomeOf(record)
  return { ...rest, outcome, truncated: outcomes[outcome].truncated, rewards, reward: totalReward(rewards) }
}

/** Whether a record has all its own scores, so that its group's reward is the one that failed. */
function failedWithGroup(record: RolloutRecord, environment: Environment): boolean {
  const { outcome, rewards, metrics } = record
  if (outcome !== 'reward_error' || !outcomes[agentOutcomeOf(record)].scored || !hasGroupReward(environment))
    return false
  return ownRewardNames(environment).every((name) => name in rewards || name in metrics)
}
