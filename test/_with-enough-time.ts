import type { Outcome, RolloutRecord } from 'millrace'

/**
 * What a story about time came to. It is told again, with all its times so much longer, if that was something else than
 * these outcomes: a machine that stands still uses up a short time before anything could happen in it.
 */
export async function withEnoughTime(
  outcomes: readonly Outcome[],
  story: (factor: number) => Promise<readonly RolloutRecord[]>,
): Promise<readonly RolloutRecord[]> {
  let records: readonly RolloutRecord[] = []
  for (const factor of [1, 10, 50]) {
    records = await story(factor)
    if (records.every(({ outcome }, index) => outcome === outcomes[index])) break
  }
  return records
}
