import { hash } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { dirname, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { importedFiles } from './_imported-files.ts'

/** The files that make an environment, each with a digest: by its path from the folder of the module itself. */
export type EnvironmentCode = Readonly<Record<string, string>>

/** Node loads a module once, so what was read at first is what runs, whatever became of the file. */
const read = new Map<string, Promise<EnvironmentCode>>()

/**
 * What the environment of a loaded module consists of: the module and what it imports that is no package. What it opens by
 * itself, and imports only later, is not seen.
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
    // Replaced or removed as it was loaded: that is no reason to fail, but it is a change.
    return 'unreadable'
  }
}
