import { waitsForGroups } from '../../rollout/index.ts'
import { outcomeNames, outcomes } from '../../schema/index.ts'
import type { RunReader, RunStore } from '../../store/index.ts'
import { changedFiles, codeChangeNotice } from './code-change.ts'
import type { RunInfo, RunOptions } from '../options.ts'
import type { OpenedRun } from './open-run.ts'
import type { RunConfig } from '../run-config.ts'
import { narrowNotice } from './run-tasks.ts'
import { RunSpending } from '../stats/spending.ts'

export interface ResumedRun {
  readonly info: RunInfo
  readonly changedCode: readonly string[]
  /** Whether the run was complete before this launch: doing less than all of it leaves it complete. */
  readonly wasComplete: boolean
}

/** Called only once everything else is ready: a launch whose backend is gone must not cost the run its results. */
export async function resumeRun(
  { store, name, folder, taskLimit, formerTaskLimit, code, notices }: OpenedRun,
  config: RunConfig,
  { retryFailed }: RunOptions,
): Promise<ResumedRun> {
  const endedBefore = store.reader.counts().ended
  const again = retryFailed ? [await runAgain(store, name, config)] : []
  const wasComplete = store.wasComplete && formerTaskLimit === taskLimit
  const resumed = store.reader.counts().ended
  const isLeft = wasComplete || resumed > 0 || isUnderWay(store.reader)
  // If nothing of earlier launches is left, all results will be of the code that runs now.
  if (code && store.isResumed && !isLeft) store.amend({ provenance: { code, changedCode: [] } })
  const changedCode = code ? changedFiles(store.run.provenance['code'], code) : []
  const ended =
    resumed < endedBefore ? `the results of ${quantity(resumed)} are kept` : `${quantity(resumed)} had ended`
  const found = [
    // A complete run may still have something to do: its tasks may have become more.
    `${wasComplete ? `run ${name} was complete` : `continuing run ${name}`}: ${ended}`,
    wasComplete ? undefined : narrowNotice(name, taskLimit, config.limit),
    wasComplete ? undefined : codeChangeNotice(name, changedCode),
  ].filter((notice) => notice !== undefined)
  const allNotices = [...notices, ...again, ...(store.isResumed ? found : [])]
  return { info: { name, folder, resumed, notices: allNotices }, changedCode, wasComplete }
}

function isUnderWay(reader: RunReader): boolean {
  for (const { state } of reader.unfinished()) if (state !== 'discarded') return true
  return false
}

/** Takes back failed results. Without money to run them again, nothing is taken back: they would only be missing. */
async function runAgain(store: RunStore, name: string, config: RunConfig): Promise<string> {
  const { maxCostUsd } = config
  if (maxCostUsd !== null && (await RunSpending.soFar(store.reader)).costUsd >= maxCostUsd) {
    return `run ${name} has spent its --max-cost (maxCostUsd) of ${maxCostUsd} dollars: raise the limit to run more rollouts`
  }
  const failed = outcomeNames.filter((outcome) => !outcomes[outcome].scored)
  const count = await store.retryFailed({
    outcomes: failed,
    // A rollout that only lacks its score is read back from its journal, where its tools allow that, and scored again.
    reopened: failed.filter((outcome) => outcomes[outcome].rule === 'rescore'),
    wholeGroups: waitsForGroups(config.group),
  })
  return count === 0
    ? `run ${name} has no rollout without a score: there is nothing to run again`
    : `running again: ${quantity(count)} that ended without a score`
}

function quantity(rollouts: number): string {
  return `${rollouts.toLocaleString('en-US')} rollout${rollouts === 1 ? '' : 's'}`
}
