/** The longest delay of a timer, about 25 days. */
export const maxTimerMs = 2 ** 31 - 1

/** A delay that a timer can take. Node turns longer ones, such as `Infinity`, into a millisecond. */
export function timerMs(ms: number): number {
  return Math.min(Math.max(ms, 0), maxTimerMs)
}
