import { readFileSync } from 'node:fs'
import { identify, type ProcessId } from './_descendants.ts'
import { markVariable, type ProcessGuard } from './process-guard.ts'

/**
 * The processes that the server of this mark started, however indirectly. Finds also those whose parents are dead, which no walk
 * down the tree does. The guard looks for them, because that reads the environment of every process on the machine.
 */
export async function markedProcesses(mark: string, guard: ProcessGuard): Promise<ProcessId[]> {
  const pids = await guard.marked(mark)
  return pids.flatMap((pid) => {
    const process = hasMark(pid, mark) ? identify(pid) : undefined
    return process ? [process] : []
  })
}

function hasMark(pid: number, mark: string): boolean {
  try {
    return readFileSync(`/proc/${pid}/environ`, 'latin1').includes(`${markVariable}=${mark}`)
  } catch {
    // The process is gone.
    return false
  }
}
