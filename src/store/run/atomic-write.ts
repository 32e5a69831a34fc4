import { closeSync, fsyncSync, openSync, renameSync, rmSync, writeSync } from 'node:fs'
import { dirname } from 'node:path'

/** A reader sees the old file or the new one, whole, also after a loss of power. Needs one writer per path. */
export function writeAtomically(path: string, content: string | Uint8Array): void {
  const temporary = `${path}.tmp`
  try {
    const descriptor = openSync(temporary, 'w')
    try {
      writeFully(descriptor, typeof content === 'string' ? Buffer.from(content) : content)
      fsyncSync(descriptor)
    } finally {
      closeSync(descriptor)
    }
    renameSync(temporary, path)
  } catch (error) {
    rmSync(temporary, { force: true })
    throw error
  }
  syncFolder(dirname(path))
}

/** A write on a nearly full disk may be short without failing: the next one then throws the reason. */
export function writeFully(descriptor: number, bytes: Uint8Array): void {
  let written = 0
  while (written < bytes.byteLength) written += writeSync(descriptor, bytes, written)
}

/** A new name in a folder is durable once the folder is. */
export function syncFolder(folder: string): void {
  const descriptor = openSync(folder, 'r')
  try {
    fsyncSync(descriptor)
  } finally {
    closeSync(descriptor)
  }
}
