import { MillraceError } from '../errors/index.ts'

/** The error for a reward that has used up the time kept for rewards. It names the limit, because that has no flag. */
export function lateReward(what: 'the reward' | 'the group reward', tailMs: number): MillraceError {
  return new MillraceError('reward_failed', `${what} took longer than the ${tailMs} ms kept for it (limits.tailMs)`)
}
