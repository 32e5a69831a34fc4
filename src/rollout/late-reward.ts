import { MillraceError } from '../errors/index.ts'

/** The error for a reward that has used up the time kept for rewards. */
export function lateReward(what: 'the reward' | 'the group reward', tailMs: number): MillraceError {
  return new MillraceError('reward_failed', `${what} took longer than the ${tailMs} ms kept for it (limits.tailMs)`)
}
