import { roundedSum, TimeSlice } from '../../kit/index.ts'
import { addUsage } from '../../rollout/index.ts'
import { emptyUsage, outcomes, type RolloutRecord, type Usage } from '../../schema/index.ts'
import {
  type AttemptSpending,
  type BareRecord,
  type RolloutFacts,
  type RunFile,
  type RunReader,
  unlessDamaged,
} from '../../store/index.ts'
import type { Summary } from '../summary.ts'

interface SpentAttempt {
  readonly rollout: string
  readonly attempt: number
  readonly isOpen: boolean
  readonly hasEnded: boolean
  readonly usage: Usage
  readonly cost: number | null
}

/** The cost of a run, with attempts that did not count: a retry is paid for like anything else. */
export class RunSpending {
  /** The cost so far of attempts that an earlier launch left open. At most as many as ran at once. */
  readonly #open = new Map<string, number>()
  #costUsd = 0

  static async soFar(reader: RunReader): Promise<RunSpending> {
    const spending = new RunSpending()
    for await (const stored of new TimeSlice().over(reader.ended())) {
      const record = unlessDamaged(() => stored.record)
      spending.addEnded(stored, record, reader)
    }
    await spending.addUnaccepted(reader)
    return spending
  }

  /** US dollars, as far as prices are known. */
  get costUsd(): number {
    return this.#costUsd
  }

  /** Adds an attempt that has ended. Its cost includes what it had cost before it was cut off, which was added already. */
  add({ id, attempt, cost }: Pick<RolloutRecord, 'id' | 'attempt' | 'cost'>): void {
    const key = keyOf(id, attempt)
    this.#costUsd += (cost ?? 0) - (this.#open.get(key) ?? 0)
    this.#open.delete(key)
  }

  /** Adds a result of an earlier launch. If its record cannot be read, its journal says what it cost. */
  addEnded({ rollout: id, attempt }: RolloutFacts, record: BareRecord | undefined, reader: RunReader): void {
    this.add(record ?? { id, attempt, cost: byJournal(reader, id, attempt).cost })
  }

  async addUnaccepted(reader: RunReader): Promise<void> {
    for await (const { rollout, attempt, isOpen, cost } of new TimeSlice().over(spentAttempts(reader))) {
      this.#costUsd += cost ?? 0
      if (isOpen) this.#open.set(keyOf(rollout, attempt), cost ?? 0)
    }
  }
}

export function unacceptedSpending(reader: RunReader): Pick<Summary, 'discarded' | 'unfinished'> {
  const discarded = { attempts: 0, usage: emptyUsage(), costUsd: 0, costUnknown: 0 }
  const unfinished = { attempts: 0, waitForGroup: 0, usage: emptyUsage(), costUsd: 0, costUnknown: 0 }
  for (const { isOpen, hasEnded, usage, cost } of spentAttempts(reader)) {
    const spending = isOpen ? unfinished : discarded
    spending.attempts += 1
    if (isOpen && hasEnded) unfinished.waitForGroup += 1
    if (cost === null) spending.costUnknown += 1
    else spending.costUsd += cost
    addUsage(spending.usage, usage)
  }
  for (const spending of [discarded, unfinished]) spending.costUsd = roundedSum(spending.costUsd)
  return { discarded, unfinished }
}

function* spentAttempts(reader: RunReader): Generator<SpentAttempt, void, void> {
  for (const stored of reader.unaccepted()) {
    const { rollout, attempt, isOpen } = stored
    const record = unlessDamaged(() => stored.record)
    // An attempt that is to be scored again may have spent more since it was recorded.
    const hasEnded = record !== undefined && outcomes[record.outcome].rule !== 'rescore'
    const { judgeUsage, cost, ...spent } = hasEnded ? record : byJournal(reader, rollout, attempt)
    const usage = { ...spent.usage }
    addUsage(usage, judgeUsage)
    yield { rollout, attempt, isOpen, hasEnded, usage, cost }
  }
}

function byJournal(reader: RunReader, rollout: string, attempt: number): AttemptSpending {
  const spending = unlessDamaged(() => reader.spending(rollout, attempt))
  return spending ?? { usage: emptyUsage(), judgeUsage: emptyUsage(), cost: null }
}

function keyOf(rollout: string, attempt: number): string {
  return `${rollout} ${attempt}`
}

export function sumTries(parts: readonly Summary['tries'][]): Summary['tries'] {
  return {
    calls: parts.reduce((sum, { calls }) => sum + calls, 0),
    tries: parts.reduce((sum, { tries }) => sum + tries, 0),
  }
}

/** The tries of all launches of a run. Those of a launch that was cut off are not known, and not counted. */
export function triesOfRun({ launches }: RunFile): Summary['tries'] {
  return sumTries(launches.flatMap(({ sent }) => sent ?? []))
}
