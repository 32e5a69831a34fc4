import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'

const entryNames = ['environment.ts', 'environment.js', 'environment.mjs']

/** The environment's module in a folder, if there is one. */
export function environmentEntry(folder: string): URL | undefined {
  const name = entryNames.find((entry) => existsSync(join(folder, entry)))
  return name === undefined ? undefined : pathToFileURL(join(folder, name))
}
