import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { environmentEntry } from './_environment-entry.ts'
import { examplesUrl } from './register-resolver.ts'

/** The names of the environments that come with Millrace. */
export async function exampleNames(): Promise<string[]> {
  const folder = fileURLToPath(examplesUrl)
  const names = await readdir(folder).catch((): string[] => [])
  return names.filter((name) => environmentEntry(join(folder, name)) !== undefined).sort()
}
