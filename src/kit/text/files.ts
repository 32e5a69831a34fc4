import { mkdirSync, readFileSync, statSync } from 'node:fs'
import { createRequire } from 'node:module'
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

let version: string | undefined

export function packageVersion(): string {
  version ??= readVersion()
  return version
}

function readVersion(): string {
  // package.json is as far up from `dist` as from `src`.
  const file = readFileSync(new URL('../../../package.json', import.meta.url), 'utf8')
  return (JSON.parse(file) as { version: string }).version
}

const load = createRequire(import.meta.url)

/** Loads a package when it is first used: each worker and thread loads all of the library, and most never use the package. */
export function onFirstUse<Package>(from: (load: NodeJS.Require) => Package): () => Package {
  let loaded: Package | undefined
  return () => (loaded ??= from(load))
}
