/** About 25 days. `setTimeout` fires at once for anything longer. */
export const maxTimerMs = 2 ** 31 - 1
