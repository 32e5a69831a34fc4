import type { DatabaseSync, StatementSync } from 'node:sqlite'
import type { Usage } from '../schema/index.ts'
import { messageRows } from './damage.ts'

/** Tokens and US dollars; the cost is null if the price of a call is not known. */
export interface SampledSpending {
  readonly usage: Usage
  readonly cost: number | null
}

/** The start of a statement: selects a rollout (?1) in one of its attempts (?2), with all children below it. */
export const familyOf = `
  WITH RECURSIVE family (rollout) AS (
    SELECT ?1 UNION ALL
    SELECT attempt.rollout FROM attempt JOIN family ON attempt.parent = family.rollout WHERE attempt.attempt = ?2
  )`

/** Sums what the model calls of one attempt and its children took, without reading their messages. */
export class SampledSpendings {
  readonly #sum: StatementSync

  constructor(database: DatabaseSync) {
    this.#sum = database.prepare(`
      ${familyOf}
      SELECT total(meta ->> '$.call.usage.calls') AS calls,
             total(meta ->> '$.call.usage.input') AS input,
             total(meta ->> '$.call.usage.cachedInput') AS cachedInput,
             total(meta ->> '$.call.usage.output') AS output,
             total(meta ->> '$.call.usage.reasoning') AS reasoning,
             total(meta ->> '$.call.usage.estimated') AS estimated,
             CASE count(meta ->> '$.call.usage.calls') WHEN count(meta ->> '$.call.cost')
               THEN total(meta ->> '$.call.cost') END AS cost
      FROM family JOIN node ON node.rollout = family.rollout AND node.attempt = ?2`)
  }

  of(rollout: string, attempt: number): SampledSpending {
    const row = messageRows(rollout, () => this.#sum.get(rollout, attempt))
    const { cost, estimated, ...usage } = row as SpendingRow
    return { usage: estimated > 0 ? { ...usage, estimated } : usage, cost }
  }
}

// An alias, not an interface: only aliases can be asserted from the index signature that node:sqlite returns.
type SpendingRow = {
  calls: number
  input: number
  cachedInput: number
  output: number
  reasoning: number
  estimated: number
  cost: number | null
}
