/** What a worker is called. Those that run suspects on their own have ids below zero. */
export function workerName(id: number): string {
  return id < 0 ? `quarantine worker ${-id}` : `worker ${id}`
}
