import { hash } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { dirname, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { importedFiles } from './_imported-files.ts'

/** The digests of an environment's files, by their paths relative to the module's folder. */
export type EnvironmentCode = Readonly<Record<string, string>>

/** The first digests are kept: Node loads a module once, so later changes of the files do not affect what runs. */
const read = new Map<string, Promise<EnvironmentCode>>()

/**
 * The files of a loaded environment: its module and what that imports, except for packages. Files that it opens by itself,
 * or imports only later, are not seen.
 */
export function environmentCode(specifier: string): Promise<EnvironmentCode> {
  const known = read.get(specifier)
  if (known) return known
  const reading = readCode(specifier)
  read.set(specifier, reading)
  return reading
}

async function readCode(specifier: string): Promise<EnvironmentCode> {
  const folder = dirname(fileURLToPath(specifier))
  const entries = await Promise.all(
    importedFiles(specifier).map(async (url): Promise<readonly [string, string]> => {
      const path = fileURLToPath(url)
      return [relative(folder, path), await digestOf(path)]
    }),
  )
  return Object.fromEntries(entries)
}

async function digestOf(path: string): Promise<string> {
  try {
    return hash('sha256', await readFile(path)).slice(0, 16)
  } catch {
    // The file was replaced or removed while it was loaded: no reason to fail, but it counts as a change.
    return 'unreadable'
  }
}
