/** How the advantage of a rollout is computed from the rewards of its group. docs/export.md has the formulas. */
export const advantageRules = ['none', 'mean', 'grpo', 'rloo'] as const
export type AdvantageRule = (typeof advantageRules)[number]

/** Keeps a group with nearly equal rewards from getting huge advantages. */
const epsilon = 1e-4

/** The rewards of a group. Members without one, such as those that a broken server ended, are not counted. */
export class GroupScores {
  readonly #rule: AdvantageRule
  readonly #count: number
  readonly #mean: number
  readonly #deviation: number

  constructor(rule: AdvantageRule, scores: Iterable<number | null>) {
    const known = Array.from(scores).filter((score) => score !== null)
    const count = known.length
    const mean = count === 0 ? 0 : known.reduce((sum, score) => sum + score, 0) / count
    const squares = known.reduce((sum, score) => sum + (score - mean) ** 2, 0)
    this.#rule = rule
    this.#count = count
    this.#mean = mean
    this.#deviation = count < 2 ? 0 : Math.sqrt(squares / (count - 1))
  }

  /** How much better a member did than its group: 0 in a group of one, null for a member without a reward. */
  advantage(score: number | null): number | null {
    if (score === null || this.#rule === 'none') return null
    if (this.#count < 2) return 0
    const better = score - this.#mean
    if (this.#rule === 'mean') return better
    if (this.#rule === 'grpo') return better / (this.#deviation + epsilon)
    // The mean of the others.
    return (better * this.#count) / (this.#count - 1)
  }
}
