import { constants } from 'node:fs'
import { access, stat } from 'node:fs/promises'
import { delimiter, join, resolve } from 'node:path'

/** The file that a shell would run for a command; undefined if there is none, or if it is not executable. */
export async function findCommand(
  command: string,
  { path, cwd }: { readonly path: string; readonly cwd: string },
): Promise<string | undefined> {
  const places = command.includes('/')
    ? [resolve(cwd, command)]
    : path.split(delimiter).map((folder) => join(folder, command))
  for (const place of places) if (await isExecutable(place)) return place
  return undefined
}

async function isExecutable(file: string): Promise<boolean> {
  try {
    await access(file, constants.X_OK)
    return (await stat(file)).isFile()
  } catch {
    return false
  }
}
