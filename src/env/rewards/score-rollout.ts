import { inspect } from 'node:util'
import { MillraceError } from '../../errors/index.ts'
import { withAbort, roundedSum, thrownBy } from '../../kit/index.ts'
import type { RewardComponent } from '../../schema/index.ts'
import { endsAttempt } from '../../tools/index.ts'
import type { RewardContext } from '../define/context.ts'
import type { Environment } from '../define/define-environment.ts'
import {
  type GroupRewardFunction,
  type OffloadedReward,
  type OffloadedRewardContext,
  offloadedRewardOf,
  type RewardFunction,
} from './reward.ts'

export interface ScoreResult {
  /** The sum of weight times score, without the components that score whole groups. */
  readonly reward: number
  readonly rewards: Record<string, RewardComponent>
  /** The scores of components of weight 0. */
  readonly metrics: Record<string, number>
}

export interface ScoringHooks {
  /** Runs an offloaded component on another thread; missing if no component is offloaded. */
  readonly scoreOnThread?: (component: string, timeoutMs: number) => Promise<Score>
  /** Called when a component has blocked this thread for that long. */
  readonly onBlocked: (component: string, ms: number) => void
}

type Context = RewardContext<unknown, unknown, unknown>
type Score = number | boolean

/** Longer than a reward should block the thread, even on a busy machine. */
const blockedAfterMs = 200

/** Scores a rollout with its components, side by side. Rejects with `reward_failed`, or with the signal's reason. */
export async function scoreRollout(
  environment: Environment,
  context: Context,
  hooks?: ScoringHooks,
): Promise<ScoreResult> {
  const { perRollout } = rewardComponents(environment)
  const scores: (Score | undefined)[] = []
  const scoring = perRollout.map(async (component, index) => {
    try {
      scores[index] = await start(component, context, hooks)
    } catch (error) {
      throw rewardFailure(component.name, error, context.signal)
    }
  })
  try {
    await withAbort(Promise.all(scoring), context.signal)
  } catch (error) {
    throw error === context.signal.reason ? withLate(error, perRollout, scores) : error
  }
  return sum(perRollout, scores)
}

function start({ name, score, offloaded }: RolloutComponent, context: Context, hooks: ScoringHooks | undefined) {
  if (offloaded && hooks?.scoreOnThread) return hooks.scoreOnThread(name, offloaded.timeoutMs)
  const startedAt = performance.now()
  try {
    return score(context)
  } finally {
    const ms = performance.now() - startedAt
    if (ms > blockedAfterMs) hooks?.onBlocked(name, ms)
  }
}

export function hasOffloadedReward(environment: Environment): boolean {
  return rewardComponents(environment).perRollout.some(({ offloaded }) => offloaded !== undefined)
}

/** Runs an offloaded component, found by its name, on its own thread. Errors get the name and place, which threads would lose. */
export async function scoreOffloaded(
  environment: Environment,
  component: string,
  context: OffloadedRewardContext<unknown, unknown>,
): Promise<Score> {
  const { offloaded } = rewardComponents(environment).perRollout.find(({ name }) => name === component) ?? {}
  try {
    if (offloaded) return await offloaded.score(context)
  } catch (error) {
    throw namedFailure(component, error)
  }
  throw new MillraceError(
    'reward_failed',
    `${environment.name} has no offloaded reward "${component}" on its own thread`,
  )
}

/** If time ran out for several rewards, names those without a score; other reasons to stop are returned unchanged. */
function withLate(
  error: unknown,
  components: readonly RolloutComponent[],
  scores: readonly (Score | undefined)[],
): unknown {
  if (!(error instanceof MillraceError) || error.code !== 'reward_failed' || components.length === 1) return error
  const late = components.filter((_, index) => scores[index] === undefined).map(({ name }) => `"${name}"`)
  return new MillraceError('reward_failed', `${error.rawMessage}: ${late.join(', ')} had not ended`, {
    data: error.data,
    cause: error,
  })
}

function sum(components: readonly RolloutComponent[], scores: readonly (Score | undefined)[]): ScoreResult {
  const rewards: Record<string, RewardComponent> = {}
  const metrics: Record<string, number> = {}
  let reward = 0
  for (const [index, { name, weight }] of components.entries()) {
    const score = checked(name, scores[index])
    reward += weight * score
    if (weight === 0) metrics[name] = score
    else rewards[name] = { score, weight }
  }
  return { reward: roundedSum(reward), rewards, metrics }
}

const brief = { depth: 0, maxArrayLength: 3, maxStringLength: 60, breakLength: Number.POSITIVE_INFINITY }

function checked(name: string, score: unknown): number {
  if (typeof score === 'boolean') return score ? 1 : 0
  if (typeof score === 'number' && Number.isFinite(score)) return score
  throw new MillraceError(
    'reward_failed',
    `reward "${name}" gave ${inspect(score, brief)}; a score is a finite number or a boolean`,
    { data: { component: name } },
  )
}

interface RolloutComponent {
  readonly name: string
  readonly weight: number
  readonly score: RewardFunction<unknown, unknown, unknown>
  readonly offloaded: OffloadedReward | undefined
}

export interface GroupComponent {
  readonly name: string
  readonly weight: number
  readonly group: GroupRewardFunction<unknown, unknown>
}

interface RewardComponents {
  readonly perRollout: readonly RolloutComponent[]
  readonly perGroup: readonly GroupComponent[]
}

const cache = new WeakMap<Environment['reward'], RewardComponents>()

/** The components of an environment's reward. A single function is one component, named `reward`. */
export function rewardComponents({ reward }: Environment): RewardComponents {
  const known = cache.get(reward)
  if (known) return known
  const perRollout: RolloutComponent[] = []
  const perGroup: GroupComponent[] = []
  for (const [name, component] of Object.entries(typeof reward === 'function' ? { reward } : reward)) {
    const parts = typeof component === 'function' ? { score: component } : component
    const { weight = 1 } = parts
    if ('group' in parts) perGroup.push({ name, weight, group: parts.group })
    else perRollout.push({ name, weight, score: parts.score, offloaded: offloadedRewardOf(parts.score) })
  }
  const components = { perRollout, perGroup }
  cache.set(reward, components)
  return components
}

/** What a component's exception means: the stop that caused it, the end of the attempt, or a failed reward with its name. */
export function rewardFailure(name: string, thrown: unknown, signal: AbortSignal): unknown {
  if (signal.aborted) return signal.reason
  if (endsAttempt(thrown)) return thrown
  return namedFailure(name, thrown)
}

/** A failed reward with the component's name, which an error from another thread has already. */
function namedFailure(name: string, thrown: unknown): MillraceError {
  if (thrown instanceof MillraceError && thrown.data['component'] === name) return thrown
  const { rawMessage, data } = thrownBy(`reward "${name}"`, thrown, 'reward_failed')
  return new MillraceError('reward_failed', rawMessage, { data: { ...data, component: name }, cause: thrown })
}
