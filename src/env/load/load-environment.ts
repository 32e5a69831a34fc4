import { existsSync } from 'node:fs'
import { basename } from 'node:path'
import { fileURLToPath } from 'node:url'
import { MillraceError } from '../../errors/index.ts'
import { nearestName, errorLocation, withAbort } from '../../kit/index.ts'
import { isJsonObject } from '../../schema/index.ts'
import { environmentOf, type LoadedEnvironment, type RawOptions } from './environment-of.ts'
import { locateEnvironment } from './locate-environment.ts'
import { followImports, registerResolver } from './module-hooks.ts'

type Exports = Readonly<Record<string, unknown>>

/**
 * Loads an environment by the name a person gives it: a path to a module, a folder with an `environment.ts`, the name of an
 * example or of a package. The `specifier` of the result is a URL that loads the same environment on any thread.
 */
export async function loadEnvironment(
  specifier: string,
  rawOptions: RawOptions = {},
  { cwd = process.cwd(), signal }: { readonly cwd?: string; readonly signal?: AbortSignal | undefined } = {},
): Promise<LoadedEnvironment> {
  registerResolver()
  const url = await locateEnvironment(specifier, cwd)
  followImports(url.href)
  let module: Exports
  try {
    module = await importModule(url, signal)
  } catch (error) {
    signal?.throwIfAborted()
    throw loadFailure(url, error)
  }
  const environment = exportedEnvironment(module)
  if (environment === undefined) {
    const names = Object.keys(module)
    throw new MillraceError(
      'env_invalid',
      `${fileURLToPath(url)} exports no environment: write \`export default defineEnvironment({ … })\`` +
        (names.length > 0 ? `. It exports ${names.join(', ')}` : ''),
    )
  }
  return environmentOf(environment, rawOptions, url.href)
}

/** The exports of a CommonJS module are its default; what TypeScript compiled (`__esModule`) has its default among these. */
function exportedEnvironment(module: Exports): unknown {
  const found = environmentAmong(module)
  return isJsonObject(found) && '__esModule' in found ? environmentAmong(found) : found
}

function environmentAmong(exports: Exports): unknown {
  return exports['default'] ?? exports['environment']
}

/** Why a module could not be loaded: the error, its place in the author's files, and what to do. Our errors keep their code. */
function loadFailure(url: URL, thrown: unknown): MillraceError {
  const path = fileURLToPath(url)
  const { code, rawMessage, data } = MillraceError.from(thrown, 'env_load_failed')
  const place = errorLocation(thrown, url)
  const at = place ? ` (at ${place})` : ''
  const hint = hintFor(thrown, path, place)
  return new MillraceError(code, `${path} could not be loaded: ${rawMessage}${at}${hint ? `. ${hint}` : ''}`, {
    data: { path, ...(place && { place }), ...data },
    cause: thrown,
  })
}

function hintFor(thrown: unknown, path: string, place: string | undefined): string | undefined {
  const code = thrown instanceof Error && 'code' in thrown ? thrown.code : undefined
  switch (code) {
    case 'ERR_UNSUPPORTED_TYPESCRIPT_SYNTAX':
      return 'Node runs TypeScript by leaving out the types, so enums, namespaces and parameter properties do not work: use plain JavaScript for them, such as a constant object'
    case 'ERR_UNSUPPORTED_NODE_MODULES_TYPE_STRIPPING':
      return 'Node does not run TypeScript from node_modules: use a package with JavaScript, or copy its environment out of node_modules'
    case 'ERR_UNKNOWN_FILE_EXTENSION':
      return 'An environment is a module in a .ts, .js or .mjs file'
    case 'ERR_MODULE_NOT_FOUND':
      return missingModuleHint(thrown instanceof Error ? thrown.message : '')
    default:
      if (thrown instanceof SyntaxError && !place) return `\`node --check ${path}\` shows the place`
      return 'Correct that and run it again; --debug (`cause` of the error) shows the whole stack'
  }
}

function missingModuleHint(message: string): string | undefined {
  const missing = /^Cannot find module '([^']+)'/.exec(message)?.[1]
  const extension = missing && ['.ts', '.js', '.mjs'].find((each) => existsSync(missing + each))
  if (extension) return `Imports need the file's extension: write ${extension} at the end`
  // TypeScript's own habit, for a compiler that would write that file.
  const source = missing?.replace(/js$/, 'ts')
  if (source && source !== missing && existsSync(source)) {
    return `Imports must name the existing file: write ${basename(source)}`
  }
  const packageName = /^Cannot find package '([^']+)'/.exec(message)?.[1]
  if (packageName === undefined) return undefined
  // A package with a similar name could be a stranger's code, so it is not suggested for installation. Names that begin
  // with `millrace-` are no misspellings: such packages go with Millrace.
  if (!packageName.startsWith('millrace-') && nearestName(packageName, ['millrace'])) return `Did you mean 'millrace'?`
  return `Install it where the environment is: npm install ${packageName}`
}

const neverCame =
  'an await outside of any function, in this module or one of its imports, never resolves; give it a time limit, or move it into `tasks` or `setup`'

/** The imports under way share one listener: Node warns of a leak from the eleventh on. */
const pending = new Set<() => void>()

/** Gives up when nothing is left to wait for: Node would silently end the process at an `await` that never settles. */
export async function importModule(url: URL, signal?: AbortSignal): Promise<Readonly<Record<string, unknown>>> {
  const idle = Promise.withResolvers<never>()
  const abort = (): void => idle.reject(new MillraceError('env_load_failed', neverCame))
  if (pending.size === 0) process.on('beforeExit', abortAll)
  pending.add(abort)
  try {
    const loading = Promise.race([import(url.href), idle.promise])
    return await (signal ? withAbort(loading, signal) : loading)
  } finally {
    pending.delete(abort)
    if (pending.size === 0) process.off('beforeExit', abortAll)
  }
}

function abortAll(): void {
  for (const abort of pending) abort()
}
