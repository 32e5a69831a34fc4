/** How messages name the way to start a new run, as a flag and as an option of `evaluate()`. */
export const asNewRun = "--new (run.resume: 'never')"
