import type { StoredReward } from '../../store/index.ts'
import type { Interaction } from './_rows-conversation.ts'
import type { Tree } from './_rows-trees.ts'

/** The reward and return of an interaction; null if none was given, which is not the same as 0. */
export interface Worth {
  readonly reward: number | null
  /** The interaction's reward plus the discounted rewards after it. */
  readonly return: number | null
}

export const unknownWorth: Worth = { reward: null, return: null }

export interface Rewards {
  readonly said: readonly StoredReward[]
  /** The trees that the session's reward is for. */
  readonly main: ReadonlySet<Tree>
  /** The factor by which a later reward counts less per step, from 0 to 1. */
  readonly discount: number
}

/**
 * The worth of each interaction. The session's reward goes to the last interaction of every branch of a main tree, in addition
 * to its own. A return is the reward plus the discounted mean of the returns of the branches that follow; branches without a return are
 * left out of the mean.
 */
export function worthOf(
  interactions: readonly Interaction[],
  { said: rewards, main, discount }: Rewards,
): ReadonlyMap<Interaction, Worth> {
  const said = new Map(rewards.map(({ node, value }) => [node, value]))
  const worth = new Map<Interaction, Worth>()
  // Children come after their parents, so going backwards needs no recursion: their returns are already there.
  for (const interaction of interactions.toReversed()) {
    const { node, children, tree } = interaction
    const isLast = children.length === 0 && main.has(tree)
    const reward = sumOf([said.get(node.seq), isLast ? said.get(null) : undefined])
    const later = meanOf(children.map((child) => worth.get(child)?.return ?? null))
    worth.set(interaction, { reward, return: sumOf([reward, later === null ? null : discount * later]) })
  }
  return worth
}

function sumOf(values: readonly (number | null | undefined)[]): number | null {
  let sum: number | null = null
  for (const value of values) if (value !== null && value !== undefined) sum = (sum ?? 0) + value
  return sum
}

function meanOf(values: readonly (number | null)[]): number | null {
  const known = values.filter((value) => value !== null)
  return known.length === 0 ? null : known.reduce((sum, value) => sum + value, 0) / known.length
}
