import type { StoredReward } from '../../store/index.ts'
import type { Interaction } from './_rows-conversation.ts'

/** What an interaction was worth: null where nobody said, which is not the same as nothing. */
export interface Worth {
  readonly reward: number | null
  /** Its reward and, discounted, what came after it. */
  readonly return: number | null
}

export const unknownWorth: Worth = { reward: null, return: null }

/**
 * The session's reward goes to the last interaction of every branch, on top of one of its own. A return is the reward and
 * the discounted mean of the returns of the branches that follow; those of which nothing is known do not count in it.
 */
export function worthOf(
  interactions: readonly Interaction[],
  rewards: readonly StoredReward[],
  discount: number,
): ReadonlyMap<Interaction, Worth> {
  const said = new Map(rewards.map(({ node, value }) => [node, value]))
  const worth = new Map<Interaction, Worth>()
  // Children come after their parents, so backwards every return that is needed is there, without a recursion.
  for (const interaction of interactions.toReversed()) {
    const { node, children } = interaction
    const reward = sumOf([said.get(node.seq), children.length === 0 ? said.get(null) : undefined])
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
