import { MillraceError } from '../../errors/index.ts'
import { AbortScope, deepCopy, withAbort } from '../../kit/index.ts'
import type { RewardComponent, RolloutRecord } from '../../schema/index.ts'
import { type GroupComponent, rewardComponents, rewardFailure } from './score-rollout.ts'
import type { Environment } from '../define/define-environment.ts'
import type { GroupMember, GroupRewardContext } from './reward.ts'

type GroupToScore = Omit<GroupRewardContext<unknown, unknown>, 'members'> & {
  readonly members: readonly RolloutRecord[]
}

export function hasGroupReward(environment: Environment): boolean {
  return rewardComponents(environment).perGroup.length > 0
}

export function groupRewardNames(environment: Environment): string[] {
  return rewardComponents(environment).perGroup.map(({ name }) => name)
}

export function ownRewardNames(environment: Environment): string[] {
  return rewardComponents(environment).perRollout.map(({ name }) => name)
}

/** Scores by rollout id, then by component, of all components that score whole groups. */
export async function scoreGroup(
  environment: Environment,
  { task, options, members, signal }: GroupToScore,
): Promise<Record<string, Record<string, RewardComponent>>> {
  const { perGroup } = rewardComponents(environment)
  using scope = new AbortScope(signal)
  // Frozen, because scores are matched by the order of members: a reward that sorted them in place would mix up the scores.
  const group = {
    task: deepCopy(task),
    options: deepCopy(options),
    members: Object.freeze(members.map(memberOf)),
    signal: scope.signal,
  }
  const scoring = Promise.all(perGroup.map((component) => scoreComponent(component, group)))
  const columns = await withAbort(scoring, signal).catch((error: unknown) => {
    // Stops the other components, whose scores are not needed any more.
    scope.abort(error)
    throw error
  })
  const scores: Record<string, Record<string, RewardComponent>> = {}
  for (const [row, { id }] of members.entries()) {
    const components: Record<string, RewardComponent> = {}
    for (const [column, { name, weight }] of perGroup.entries()) {
      components[name] = { score: columns[column]?.[row] ?? 0, weight }
    }
    scores[id] = components
  }
  return scores
}

async function scoreComponent(
  { name, group: score }: GroupComponent,
  group: GroupRewardContext<unknown, unknown>,
): Promise<readonly number[]> {
  let scores: readonly number[]
  try {
    scores = await score(group)
  } catch (error) {
    throw rewardFailure(name, error, group.signal)
  }
  const expected = group.members.length
  const isRight = Array.isArray(scores) && scores.length === expected && scores.every((each) => Number.isFinite(each))
  if (isRight) return scores
  const found = Array.isArray(scores) ? `[${scores.slice(0, 8).map(String).join(', ')}]` : String(scores)
  throw new MillraceError(
    'reward_failed',
    `group reward "${name}" gave ${found} for ${expected} members; it must give one finite number each, in their order`,
    { data: { component: name } },
  )
}

function memberOf(record: RolloutRecord): GroupMember {
  const scores: Record<string, number> = { ...record.metrics }
  for (const [name, { score }] of Object.entries(record.rewards)) scores[name] = score
  const { id, sample, outcome, truncated } = record
  const messages = Object.freeze([...record.messages])
  return { id, sample, outcome, truncated, messages, answer: record.answer ?? '', scores, info: record.info ?? {} }
}
