import { emptyUsage, isJsonObject, outcomes } from '../schema/index.ts'
import { damagedRecord, decoded } from './damage.ts'
import type { BareRecord } from './stored-run.ts'

/** Fields that readers use without asking whether they are there. */
const objects = ['task', 'rewards', 'metrics', 'timing'] as const satisfies (keyof BareRecord)[]

/** Numbers that readers add up. */
const counts = Object.keys(emptyUsage())

/** A rollout's record from its JSON. It was valid when it was written; only what readers rely on is checked. */
export function storedRecord(rollout: string, text: string): BareRecord {
  return decoded(
    () => {
      const value: unknown = JSON.parse(text)
      if (!isRecordOf(rollout, value)) throw new Error('it is no record of that rollout')
      return value
    },
    (cause) => damagedRecord(rollout, cause),
  )
}

function isRecordOf(rollout: string, value: unknown): value is BareRecord {
  if (!isJsonObject(value)) return false
  const { id, outcome } = value
  if (id !== rollout || typeof outcome !== 'string' || !Object.hasOwn(outcomes, outcome)) return false
  return objects.every((name) => isJsonObject(value[name])) && isUsage(value['usage']) && isUsage(value['judgeUsage'])
}

function isUsage(value: unknown): boolean {
  return isJsonObject(value) && counts.every((name) => typeof value[name] === 'number')
}
