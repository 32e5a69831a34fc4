import { hash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { registerHooks, stripTypeScriptTypes, type LoadHookSync, type ResolveHookSync } from 'node:module'
import { dirname, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { compileFunction } from 'node:vm'
import { workerUrl } from '../../kit/index.ts'

/** The folder of the examples, which stands beside `src` and beside `dist`. */
export const examplesUrl = new URL('../../../examples/', import.meta.url)

const ownModules: ReadonlyMap<string, string> = new Map([
  ['millrace', workerUrl(import.meta, '../../index').href],
  ['millrace/testing', workerUrl(import.meta, '../../testing/index').href],
])

const fromPrefix = 'millrace-from:'

let isRegistered = false

/**
 * Makes `import 'millrace'` in a user's module mean this very copy, even if no package of that name is installed: with two
 * copies, an error of one would not be an instance of the other's class. Registered once per thread; worker threads do not
 * inherit it.
 */
export function registerResolver(): void {
  if (isRegistered) return
  isRegistered = true
  registerHooks({ resolve, load })
}

/** The URL of a package imported from `baseUrl`; `import.meta.resolve` resolves only from its own module. */
export function resolveFrom(specifier: string, baseUrl: string): string {
  registerResolver()
  return import.meta.resolve(`${fromPrefix}${encodeURIComponent(baseUrl)}:${specifier}`)
}

const resolve: ResolveHookSync = (specifier, context, nextResolve) => {
  const url = ownModules.get(specifier)
  if (url !== undefined) return { url, shortCircuit: true }
  if (!specifier.startsWith(fromPrefix)) {
    const resolved = nextResolve(specifier, context)
    noteImport(context.parentURL, resolved.url)
    return resolved
  }
  const end = specifier.indexOf(':', fromPrefix.length)
  const parentURL = decodeURIComponent(specifier.slice(fromPrefix.length, end))
  return nextResolve(specifier.slice(end + 1), { ...context, parentURL })
}

/**
 * Loads two kinds of files that Node would not. Node strips no types below node_modules, where our own examples are once the
 * package is installed. And Node takes files for CommonJS if package.json says so, as `npm init` writes it; a file with
 * imports and exports is still loaded as a module.
 */
const load: LoadHookSync = (url, context, nextLoad) => {
  const isInstalled = url.includes('/node_modules/')
  if (isInstalled && url.startsWith(examplesUrl.href) && url.endsWith('.ts')) {
    return { format: 'module', source: stripTypeScriptTypes(sourceOf(url)), shortCircuit: true }
  }
  const { format } = context
  if (!isInstalled && url.startsWith('file:')) {
    if (format === 'commonjs' && isModule(sourceOf(url))) return nextLoad(url, { ...context, format: 'module' })
    if (format === 'commonjs-typescript' && isModule(sourceOf(url), stripTypeScriptTypes)) {
      return nextLoad(url, { ...context, format: 'module-typescript' })
    }
  }
  return nextLoad(url, context)
}

/** Whether a source that should be CommonJS is a module: it has a line that looks like one, and does not compile as CommonJS. */
function isModule(source: string, strip = (typed: string) => typed): boolean {
  if (!moduleSyntax.test(source)) return false
  try {
    compileFunction(strip(source), ['exports', 'require', 'module', '__filename', '__dirname'])
    return false
  } catch {
    return true
  }
}

/** A line that begins with `import` or `export`. It may also stand in a template literal or a comment. */
const moduleSyntax = /^\s*(?:import\s*[\w{*'"]|export\s+[\w{*])/m

function sourceOf(url: string): string {
  return readFileSync(fileURLToPath(url), 'utf8')
}

/** The digests of an environment's files, by their paths relative to the module's folder. */
export type EnvironmentCode = Readonly<Record<string, string>>

/** The first digests are kept: Node loads a module once, so later changes of the files do not affect what runs. */
const read = new Map<string, Promise<EnvironmentCode>>()

/** The module of a loaded environment and what it imports, except for packages, imports made later and files it opens. */
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

/** The most files that are followed; those nearest to the environment come first. */
const maxFiles = 500

const imports = new Map<string, Set<string>>()

/** From now on, records what this module imports, directly and indirectly, except for packages. */
export function followImports(url: string): void {
  if (!imports.has(url) && imports.size < maxFiles) imports.set(url, new Set())
}

/** Called for every import that Node resolves, which happens once per thread. */
function noteImport(parentUrl: string | undefined, url: string): void {
  const known = parentUrl === undefined ? undefined : imports.get(parentUrl)
  if (!known || !url.startsWith('file:') || url.includes('/node_modules/')) return
  known.add(url)
  followImports(url)
}

function importedFiles(url: string): string[] {
  const found = new Set([url])
  // A Set may grow while it is iterated.
  for (const each of found) for (const imported of imports.get(each) ?? []) found.add(imported)
  return [...found]
}
