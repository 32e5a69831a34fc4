import { mkdirSync, statSync } from 'node:fs'
import { dirname, resolve } from 'node:path'

/**
 * Makes a folder and those above it. `mkdirSync` with `recursive` would not do: if an existing folder answers ENOENT to a new
 * name, as /proc does, Node 24 goes up and down between the two for ever and hears no signal meanwhile.
 */
export function makeFolders(folder: string): void {
  const missing: string[] = []
  let path = resolve(folder)
  while (!statSync(path, { throwIfNoEntry: false })) {
    missing.push(path)
    path = dirname(path)
  }
  for (const each of missing.toReversed()) {
    try {
      mkdirSync(each)
    } catch (error) {
      // Another process made the folder in the meantime.
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST' || !statSync(each).isDirectory()) throw error
    }
  }
}
