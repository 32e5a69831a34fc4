import { existsSync } from 'node:fs'
import { readdir, stat } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { MillraceError } from '../errors/index.ts'
import { nearestName } from '../kit/index.ts'
import { environmentEntry } from './_environment-entry.ts'
import { fileNotFound } from './_file-not-found.ts'
import { isModuleName } from './_is-module-name.ts'
import { exampleNames } from './example-names.ts'
import { examplesUrl, resolveFrom } from './register-resolver.ts'

/** The file that a specifier stands for: a path, a folder, an example of ours, or a package, tried in this order. */
export async function locateEnvironment(specifier: string, cwd: string): Promise<URL> {
  const isUrl = specifier.startsWith('file:')
  const path = isUrl ? fileURLToPath(specifier) : resolve(cwd, specifier)
  const isPath = isUrl || /^\.{0,2}\//.test(specifier) || /^\.{1,2}$/.test(specifier) || isModuleName(specifier)
  try {
    const stats = await stat(path)
    if (stats.isFile()) return pathToFileURL(path)
    const entry = environmentEntry(path)
    if (entry) return entry
    if (isPath) throw noEnvironmentIn(path)
  } catch (error) {
    if (error instanceof MillraceError) throw error
    if (isPath) throw await fileNotFound(path, error, isEnvironment)
  }
  return environmentEntry(join(fileURLToPath(examplesUrl), specifier)) ?? (await locatePackage(specifier, cwd))
}

async function locatePackage(specifier: string, cwd: string): Promise<URL> {
  let found: string
  try {
    found = resolveFrom(specifier, pathToFileURL(join(cwd, 'package.json')).href)
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ERR_MODULE_NOT_FOUND')
      throw await unknownName(specifier, cwd)
    const { rawMessage } = MillraceError.from(error, 'env_load_failed')
    throw new MillraceError('env_load_failed', `the package ${specifier} cannot be used: ${rawMessage}`, {
      cause: error,
    })
  }
  // The names of Node's own modules resolve to no file.
  if (!found.startsWith('file:')) throw await unknownName(specifier, cwd)
  return new URL(found)
}

function noEnvironmentIn(path: string): MillraceError {
  return new MillraceError(
    'file_not_found',
    `the folder ${path} holds no environment.ts; name the module itself, or write one with \`millrace init\``,
    { data: { path } },
  )
}

async function unknownName(specifier: string, cwd: string): Promise<MillraceError> {
  const path = resolve(cwd, specifier)
  if (existsSync(path)) return noEnvironmentIn(path)
  const names = await exampleNames()
  const near = nearestName(specifier, [...(await environmentsIn(cwd)), ...names])
  return new MillraceError(
    'env_load_failed',
    `there is no environment "${specifier}": neither a file or folder of that name, nor an installed package, nor an ` +
      `example.${near ? ` Did you mean ${near}?` : ''} Examples: ${names.join(', ')}`,
  )
}

/** Whether a path could be an environment, judging by its name. */
function isEnvironment(path: string): boolean {
  return isModuleName(path) || environmentEntry(path) !== undefined
}

/** The environments in a folder, which could have been meant. */
async function environmentsIn(folder: string): Promise<readonly string[]> {
  const names = await readdir(folder).catch(() => [])
  return names.filter((name) => environmentEntry(join(folder, name)))
}
