/** About 25 days. */
export const maxTimerMs = 2 ** 31 - 1

/** For a timer whose delay somebody chose: Node takes one that is too long for it, such as `Infinity`, for a millisecond. */
export function timerMs(ms: number): number {
  return Math.min(Math.max(ms, 0), maxTimerMs)
}
