import { isJsonObject } from '../../schema/index.ts'
import { unlessDamaged, type RunReader, type StoredAttempt } from '../../store/index.ts'

/** Why attempts were abandoned, by their numbers. Their rollout was started over. */
export function givenUpAttempts(reader: RunReader, attempts: readonly StoredAttempt[]): ReadonlyMap<number, string> {
  const reasons = new Map<number, string>()
  for (const { rollout, attempt } of attempts) {
    const events = unlessDamaged(() => reader.eventsOf(rollout, attempt, 'attempt-abandoned')) ?? []
    const data = events.at(-1)?.data
    if (data !== undefined && isJsonObject(data) && typeof data['why'] === 'string') reasons.set(attempt, data['why'])
  }
  return reasons
}
