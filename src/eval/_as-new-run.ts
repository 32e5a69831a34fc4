/** How a message says that nothing is to be continued: to whoever types the command, and to whoever calls `evaluate()`. */
export const asNewRun = "--new (run.resume: 'never')"
