import { createRequire } from 'node:module'

const load = createRequire(import.meta.url)

/**
 * Loads a package when it is first used, not with the file that names it. For packages that take long to load and that most
 * commands and workers never use: each worker, and each thread that loads an environment, loads all of the library.
 */
export function onFirstUse<Package>(from: (load: NodeJS.Require) => Package): () => Package {
  let loaded: Package | undefined
  return () => (loaded ??= from(load))
}
