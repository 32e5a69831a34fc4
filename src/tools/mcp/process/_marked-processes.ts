import { closeSync, openSync, readSync } from 'node:fs'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { identify, processIds, type ProcessId } from './_descendants.ts'
import { markVariable } from './process-guard.ts'

// How much of an environment is looked at.
const maxBytes = 256 * 1024

interface Marked {
  readonly value: string
  readonly process: ProcessId
}

let buffer: Buffer | undefined
let nextLook: Promise<Marked[]> | undefined

/**
 * The processes that the server of this mark started, however indirectly. Finds also those whose parents are dead, which no walk
 * down the tree does. All callers in one turn of the event loop share one search: it reads the environment of every process on
 * the machine, some 10 µs each.
 */
export async function markedProcesses(mark: string): Promise<ProcessId[]> {
  nextLook ??= nextTurn().then(() => {
    nextLook = undefined
    return allMarked()
  })
  const marked = await nextLook
  return marked.filter(({ value }) => value === mark).map(({ process }) => process)
}

function allMarked(): Marked[] {
  return processIds().flatMap((pid) => {
    const value = markOf(pid)
    const process = value === undefined ? undefined : identify(pid)
    return value === undefined || !process ? [] : [{ value, process }]
  })
}

function markOf(pid: number): string | undefined {
  buffer ??= Buffer.allocUnsafeSlow(maxBytes)
  let file: number | undefined
  try {
    file = openSync(`/proc/${pid}/environ`, 'r')
    const size = readSync(file, buffer)
    const environment = buffer.subarray(0, size)
    const at = environment.indexOf(`${markVariable}=`)
    if (at === -1) return undefined
    const start = at + markVariable.length + 1
    const end = environment.indexOf(0, start)
    return environment.toString('latin1', start, end === -1 ? size : end)
  } catch {
    // The process is gone, or another user's.
    return undefined
  } finally {
    if (file !== undefined) closeSync(file)
  }
}
