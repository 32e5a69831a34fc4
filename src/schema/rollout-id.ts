/** The id of a rollout: which task it is of, and which of the attempts at that task. */
export function rolloutId(task: number, sample: number): string {
  return `${task}-${sample}`
}
