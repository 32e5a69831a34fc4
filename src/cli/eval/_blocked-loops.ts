import { loopLag, type BlockedLoop } from '../../rollout/index.ts'
import { formatDuration } from '../format/duration.ts'
import { printableLine } from '../format/printable.ts'
import { workerName } from '../format/worker-name.ts'

/** How many functions are reported. More of them are one pattern, and `millrace doctor` lists them all. */
const maxTold = 5

/** Reports each function that blocked an event loop, once. Listens until disposed. */
export function tellOfBlockedLoops(tell: (text: string) => void): Disposable {
  const told = new Set<string>()
  return loopLag.subscribe((blocked) => {
    const { blockedBy = 'something that could not be named' } = blocked
    // The line depends on when the stack was taken; the function is the same.
    const key = blockedBy.replace(/:\d+\)$/, ')')
    if (told.size === maxTold || told.has(key)) return
    told.add(key)
    const isLast = told.size === maxTold
    tell(`${sentence(blockedBy, blocked)}${isLast ? ' Others are not told of: see millrace doctor.' : ''}`)
  })
}

function sentence(blockedBy: string, { worker, lagMs, component }: BlockedLoop): string {
  const where = worker === null ? 'the loop' : `the loop of ${workerName(worker)}`
  const step = component === undefined ? 'Make it asynchronous, or a heavy(…) reward.' : 'Make it heavy(…).'
  return `${printableLine(blockedBy)} held up ${where}, and every rollout on it, for ${formatDuration(lagMs)} or more. ${step}`
}
