import { scoreGroup, type Environment } from '../env/index.ts'
import { AbortScope } from '../kit/index.ts'
import type { RolloutRecord } from '../schema/index.ts'
import type { GroupScores } from './executor.ts'
import { lateReward } from './late-reward.ts'

/** Scores the members of a group together, within the time kept for rewards. */
export async function scoreGroupInTime(
  environment: Environment,
  group: {
    readonly task: unknown
    readonly options: unknown
    readonly members: readonly RolloutRecord[]
    readonly tailMs: number
    readonly signal: AbortSignal
  },
): Promise<GroupScores> {
  const { tailMs, signal, ...rest } = group
  using tail = new AbortScope(signal, tailMs, () => lateReward('the group reward', tailMs))
  return await scoreGroup(environment, { ...rest, signal: tail.signal })
}
