import { timerMs } from './timer-ms.ts'

/** Whether the work ends in time. If not, it goes on. No timer is left behind. */
export async function within(work: Promise<unknown>, ms: number): Promise<boolean> {
  const { promise: late, resolve } = Promise.withResolvers<false>()
  const timer = setTimeout(() => resolve(false), timerMs(ms))
  const ends = work.then(() => true)
  return Promise.race([ends, late]).finally(() => clearTimeout(timer))
}
