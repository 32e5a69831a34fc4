/** How many workers share the machine and the process, this one included. */
export interface Sharers {
  readonly onMachine: number
  readonly inProcess: number
}

let sharers: Sharers = { onMachine: 1, inProcess: 1 }

/** Called by a worker as it starts, before it loads anything that asks for its share. */
export function shareWith(others: Sharers): void {
  sharers = others
}

/** This worker's part, one at least, of what all workers of a run may have together, on threads or in processes. */
export function machineShare(whole: number): number {
  return part(whole, sharers.onMachine)
}

/** This worker's part, one at least, of what its process has. */
export function processShare(whole: number): number {
  return part(whole, sharers.inProcess)
}

function part(whole: number, among: number): number {
  return Math.max(1, Math.floor(whole / among))
}
