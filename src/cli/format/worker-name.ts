/** The name of a worker. Quarantine workers, which run suspect rollouts alone, have negative ids. */
export function workerName(id: number): string {
  return id < 0 ? `quarantine worker ${-id}` : `worker ${id}`
}
