import { roundedSum } from '../kit/index.ts'
import { addUsage, emptyUsage, type RolloutRecord } from '../schema/index.ts'
import type { RunReader } from '../store/index.ts'
import { judgeCallEvent } from './ask-judge.ts'
import { verdictOf, type RecordedVerdict } from './replay-verdicts.ts'

/** What was spent on an attempt. */
export type AttemptSpending = Pick<RolloutRecord, 'usage' | 'judgeUsage' | 'cost'>

/** What was spent on an attempt that left no record, by its journal. The spending of its children is included. */
export function journalledSpending(reader: RunReader, rollout: string, attempt: number): AttemptSpending {
  const { usage, cost } = reader.sampled(rollout, attempt)
  const judgeUsage = emptyUsage()
  const costs = [cost]
  for (const id of reader.family(rollout, attempt)) {
    for (const verdict of readJudgeCalls(reader, id, attempt)) {
      addUsage(judgeUsage, verdict.usage)
      costs.push(verdict.cost)
    }
  }
  const known = costs.filter((each) => each !== null)
  const isKnown = known.length === costs.length
  return { usage, judgeUsage, cost: isKnown ? roundedSum(known.reduce((sum, each) => sum + each, 0)) : null }
}

/** What judges said about an attempt in all its sittings, in order. */
export function readJudgeCalls(reader: RunReader, rollout: string, attempt: number): RecordedVerdict[] {
  return reader.eventsOf(rollout, attempt, judgeCallEvent).flatMap(({ data }) => verdictOf(data) ?? [])
}
