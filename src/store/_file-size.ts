import { statSync } from 'node:fs'

/** The size of a file in bytes; 0 if there is no such file. */
export function fileSize(path: string): number {
  return statSync(path, { throwIfNoEntry: false })?.size ?? 0
}
