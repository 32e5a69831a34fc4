import { inspect } from 'node:util'
import { MillraceError } from '../errors/index.ts'
import { raced, roundedSum } from '../kit/index.ts'
import type { RewardComponent } from '../schema/index.ts'
import { rewardComponents, type RolloutComponent } from './_reward-components.ts'
import { namedFailure, rewardFailure } from './_reward-failure.ts'
import type { RewardContext } from './context.ts'
import type { Environment } from './define-environment.ts'
import type { HeavyRewardContext } from './heavy.ts'

export interface ScoreResult {
  /** The sum of weight times score, without the components that score whole groups. */
  readonly reward: number
  readonly rewards: Record<string, RewardComponent>
  /** The scores of components of weight 0. */
  readonly metrics: Record<string, number>
}

export interface ScoringPlace {
  /** Runs a heavy component on another thread; missing if no component is heavy. */
  readonly scoreElsewhere?: (component: string, timeoutMs: number) => Promise<Score>
  /** Called when a component has blocked this thread for that long. */
  readonly onBlocked: (component: string, ms: number) => void
}

type Context = RewardContext<unknown, unknown, unknown>
type Score = number | boolean

/** Longer than a reward should block the thread, even on a busy machine. */
const blockedAfterMs = 200

/**
 * Scores a rollout with all components that score single rollouts; asynchronous ones run side by side. Returns a promise
 * only if one of them is asynchronous. Throws `reward_failed` with the component's name, or the signal's reason.
 */
export function scoreRollout(
  environment: Environment,
  context: Context,
  place?: ScoringPlace,
): ScoreResult | Promise<ScoreResult> {
  const { perRollout } = rewardComponents(environment)
  const scores: (Score | undefined)[] = []
  let pending: Promise<void>[] | undefined
  for (const component of perRollout) {
    let score: Score | Promise<Score>
    try {
      score = start(component, context, place)
    } catch (error) {
      // The results of the other components do not matter any more.
      for (const other of pending ?? []) other.catch(() => {})
      throw rewardFailure(component.name, error, context.signal)
    }
    // An object can only be a promise, perhaps one of a library's own class.
    if (typeof score === 'object') {
      pending ??= []
      pending.push(settle({ component, score, index: scores.length, scores, signal: context.signal }))
      // Keeps the component's place until it has a score.
      scores.push(undefined)
    } else {
      scores.push(score)
    }
  }
  if (!pending) return sum(perRollout, scores)
  return raced(Promise.all(pending), context.signal).then(
    () => sum(perRollout, scores),
    (error: unknown) => {
      throw error === context.signal.reason ? withLate(error, perRollout, scores) : error
    },
  )
}

function start({ name, score, heavy }: RolloutComponent, context: Context, place: ScoringPlace | undefined) {
  if (heavy && place?.scoreElsewhere) return place.scoreElsewhere(name, heavy.timeoutMs)
  const startedAt = performance.now()
  try {
    return score(context)
  } finally {
    const ms = performance.now() - startedAt
    if (ms > blockedAfterMs) place?.onBlocked(name, ms)
  }
}

async function settle(part: {
  component: RolloutComponent
  score: Promise<Score>
  index: number
  scores: (Score | undefined)[]
  signal: AbortSignal
}): Promise<void> {
  try {
    part.scores[part.index] = await part.score
  } catch (error) {
    throw rewardFailure(part.component.name, error, part.signal)
  }
}

export function hasHeavyReward(environment: Environment): boolean {
  return rewardComponents(environment).perRollout.some(({ heavy }) => heavy !== undefined)
}

/**
 * Runs a heavy component on its own thread. It is found by its name, because functions cannot cross threads. Throws
 * `reward_failed` with the name and the place in the code, which would be lost between threads too.
 */
export async function scoreHeavy(
  environment: Environment,
  component: string,
  context: HeavyRewardContext<unknown, unknown>,
): Promise<Score> {
  const { heavy } = rewardComponents(environment).perRollout.find(({ name }) => name === component) ?? {}
  try {
    if (heavy) return await heavy.score(context)
  } catch (error) {
    throw namedFailure(component, error)
  }
  throw new MillraceError('reward_failed', `${environment.name} has no heavy reward "${component}" on its own thread`)
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
  let index = 0
  for (const { name, weight } of components) {
    const score = checked(name, scores[index])
    index += 1
    reward += weight * score
    if (weight === 0) metrics[name] = score
    else rewards[name] = { score, weight }
  }
  return { reward: roundedSum(reward), rewards, metrics }
}

/** How much of a wrong score is shown: enough to recognise it. */
const brief = { depth: 0, maxArrayLength: 3, maxStringLength: 60, breakLength: Number.POSITIVE_INFINITY }

function checked(name: string, score: unknown): number {
  if (typeof score === 'boolean') return score ? 1 : 0
  if (typeof score === 'number' && Number.isFinite(score)) return score
  throw new MillraceError(
    'reward_failed',
    `reward "${name}" gave ${inspect(score, brief)}; a score is a finite number or a boolean`,
    {
      data: { component: name },
    },
  )
}
