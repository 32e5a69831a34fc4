import { keptChanges, SummaryAccumulator, unacceptedSpending } from '../../eval/index.ts'
import type { FoundRun, RunReader } from '../../store/index.ts'
import type { ShownSummary } from '../eval/output/summary-text.ts'
import type { Output } from '../process/output.ts'
import { SlowProgress } from '../process/slow-progress.ts'
import { storedConfig } from './stored-run.ts'

/** The results of a stored run, from its records, as of now: it may still be running. */
export function storedSummary(
  found: FoundRun,
  reader: RunReader,
  { now, stderr }: { readonly now: number; readonly stderr: Output },
): ShownSummary {
  const config = storedConfig(found)
  const { attempts, passThreshold, isServed } = config
  const accumulator = new SummaryAccumulator({ attemptsPerTask: attempts, passThreshold, isServed })
  const endedAt: number[] = []
  using progress = new SlowProgress(stderr, 'reading results')
  for (const { record, endedAt: at } of reader.ended()) {
    progress.add()
    accumulator.add(record)
    // Kept per sitting at most: only the latest end within each is of use.
    noteEnd(found, endedAt, at)
  }
  const wallMs = workedMs(found, endedAt, now)
  return {
    ...accumulator.snapshot(),
    ...unacceptedSpending(reader),
    run: found.name,
    folder: found.folder,
    environment: config.environment,
    model: config.model,
    ...(config.forkedFrom && { forkedFrom: config.forkedFrom }),
    end: endOf(found),
    changedCode: keptChanges(found.run),
    wallMs,
    perSecond: wallMs > 0 ? (accumulator.rollouts / wallMs) * 1000 : 0,
  }
}

function noteEnd({ run }: FoundRun, latest: number[], at: number): void {
  const index = run.sittings.findLastIndex(({ startedAt }) => Date.parse(startedAt) <= at)
  if (index >= 0) latest[index] = Math.max(latest[index] ?? 0, at)
}

/** The sum of all sittings. One that was cut off counts up to the last rollout that ended in it. */
function workedMs({ run }: FoundRun, latest: readonly number[], now: number): number {
  let sum = 0
  for (const [index, sitting] of run.sittings.entries()) {
    const start = Date.parse(sitting.startedAt)
    const isGoingOn = run.state === 'running' && index === run.sittings.length - 1
    const end = sitting.endedAt === undefined ? (isGoingOn ? now : latest[index]) : Date.parse(sitting.endedAt)
    sum += sitting.workedMs ?? Math.max(0, (end ?? start) - start)
  }
  return sum
}

const interruptions = ['drained', 'stopped', 'max_cost', 'failed'] as const

function endOf({ run }: FoundRun): ShownSummary['end'] {
  if (run.state !== 'unfinished') return run.state
  const end = run.sittings.at(-1)?.end
  return interruptions.find((known) => known === end) ?? 'unfinished'
}
