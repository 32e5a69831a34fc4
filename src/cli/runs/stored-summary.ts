import {
  keptChanges,
  SummaryAccumulator,
  triesOfRun,
  unacceptedSpending,
  UnreadableRollouts,
  WorkedTime,
} from '../../eval/index.ts'
import type { FoundRun, RunReader } from '../../store/index.ts'
import type { ShownSummary } from '../eval/output/summary-text.ts'
import type { Output } from '../process/output.ts'
import { SlowProgress } from '../process/slow-progress.ts'
import { storedConfig } from './stored-run.ts'

/** The results of a stored run so far, from its records: it may still be running. */
export function storedSummary(
  found: FoundRun,
  reader: RunReader,
  { now, stderr }: { readonly now: number; readonly stderr: Output },
): ShownSummary {
  const config = storedConfig(found)
  const { attempts, passThreshold, isServed } = config
  const accumulator = new SummaryAccumulator({ attemptsPerTask: attempts, passThreshold, isServed })
  const worked = new WorkedTime(found.run.sittings)
  using progress = new SlowProgress(stderr, 'reading results')
  const unreadable = new UnreadableRollouts()
  for (const stored of reader.ended()) {
    progress.add()
    worked.noteEnd(stored.endedAt)
    const record = unreadable.recordOf(stored)
    if (record) accumulator.add(record)
  }
  const wallMs = worked.sumMs(found.run.state === 'running' ? now : undefined)
  return {
    ...accumulator.snapshot(),
    ...unacceptedSpending(reader),
    run: found.name,
    folder: found.folder,
    environment: config.environment,
    model: config.model,
    ...(config.forkedFrom && { forkedFrom: config.forkedFrom }),
    end: endOf(found),
    // A server's clients may ask for a task again.
    repeatedTaskIds: isServed ? [] : reader.repeatedTaskIds(),
    changedCode: keptChanges(found.run),
    ...unreadable.snapshot(),
    wallMs,
    perSecond: wallMs > 0 ? (accumulator.rollouts / wallMs) * 1000 : 0,
    tries: triesOfRun(found.run),
  }
}

const interruptions = ['drained', 'stopped', 'max_cost', 'failed'] as const

function endOf({ run }: FoundRun): ShownSummary['end'] {
  if (run.state !== 'unfinished') return run.state
  const end = run.sittings.at(-1)?.end
  return interruptions.find((known) => known === end) ?? 'unfinished'
}
