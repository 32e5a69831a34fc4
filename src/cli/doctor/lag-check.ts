import { LoopLag, sleep } from '../../kit/index.ts'
import { formatDuration } from '../format/duration.ts'
import type { Check } from './_check.ts'

const measuredMs = 500
/** An idle event loop is this late only if the machine has no processor time for it. */
const lateMs = 20

/** Checks how late a timer fires while nothing runs: no program on this machine can do better. */
export async function lagCheck(): Promise<Check> {
  using lag = new LoopLag(0)
  await sleep(measuredMs)
  const { p99Ms, maxMs } = lag.snapshot()
  return {
    key: 'timerLag',
    name: 'timer lag',
    shown: `${formatDuration(p99Ms)} p99, ${formatDuration(maxMs)} at worst, at rest`,
    facts: { p99Ms, maxMs },
    ...(p99Ms > lateMs && {
      advice: 'This process does not get the processor when it needs it: look for what else runs here.',
    }),
  }
}
