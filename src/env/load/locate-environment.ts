import { existsSync } from 'node:fs'
import { readdir, stat } from 'node:fs/promises'
import { basename, dirname, join, resolve } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { MillraceError } from '../../errors/index.ts'
import { nearestName, nearestNames } from '../../kit/index.ts'
import { examplesUrl, resolveFrom } from './module-hooks.ts'

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

function isEnvironment(path: string): boolean {
  return isModuleName(path) || environmentEntry(path) !== undefined
}

async function environmentsIn(folder: string): Promise<readonly string[]> {
  const names = await readdir(folder).catch(() => [])
  return names.filter((name) => environmentEntry(join(folder, name)))
}

export async function exampleNames(): Promise<string[]> {
  const folder = fileURLToPath(examplesUrl)
  const names = await readdir(folder).catch((): string[] => [])
  return names.filter((name) => environmentEntry(join(folder, name)) !== undefined).sort()
}

const entryNames = ['environment.ts', 'environment.js', 'environment.mjs']

function environmentEntry(folder: string): URL | undefined {
  const name = entryNames.find((entry) => existsSync(join(folder, entry)))
  return name === undefined ? undefined : pathToFileURL(join(folder, name))
}

/** The error for a file that could not be opened: its full path, the reason, and a similar name that was perhaps meant. */
export async function fileNotFound(
  path: string,
  cause: unknown,
  couldBeMeant: (path: string) => boolean,
): Promise<MillraceError> {
  const failure = (message: string): MillraceError =>
    new MillraceError('file_not_found', message, { data: { path }, cause })
  const code = cause instanceof Error && 'code' in cause ? cause.code : undefined
  if (code === 'EACCES' || code === 'EPERM') return failure(`${path} may not be read: check its permissions`)
  if (code !== 'ENOENT' && code !== 'ENOTDIR') {
    return failure(`${path} cannot be opened: ${MillraceError.from(cause, 'file_not_found').rawMessage}`)
  }
  const folder = dirname(path)
  const names = await readdir(folder).catch(() => undefined)
  if (!names)
    return failure(`there is no file ${path}, nor a folder ${folder}; relative paths start from ${process.cwd()}`)
  const near = nearestNames(basename(path), names, names.length).find((name) => couldBeMeant(join(folder, name)))
  const hint = near ? `did you mean ${near}?` : `the folder ${folder} is there, so check the name`
  return failure(`there is no file ${path}; ${hint}`)
}

/** Whether a file of this name is code that Node can import. */
export function isModuleName(name: string): boolean {
  return /\.[cm]?[jt]sx?$/.test(name)
}
