import { readFileSync } from 'node:fs'
import { registerHooks, stripTypeScriptTypes, type LoadHookSync, type ResolveHookSync } from 'node:module'
import { fileURLToPath } from 'node:url'
import { workerUrl } from '../kit/index.ts'
import { noteImport } from './_imported-files.ts'

/** The examples that come with the package: beside `src` and beside `dist`. */
export const examplesUrl = new URL('../../examples/', import.meta.url)

const ownModules: ReadonlyMap<string, string> = new Map([
  ['millrace', workerUrl(import.meta, '../index').href],
  ['millrace/testing', workerUrl(import.meta, '../testing/index').href],
])

const fromPrefix = 'millrace-from:'

let isRegistered = false

/**
 * Makes `import 'millrace'` in a user's module mean this very copy, also where no package of that name is installed: with
 * two copies, an error of the one would not be an error of the other. Once per thread; worker threads start without.
 */
export function registerResolver(): void {
  if (isRegistered) return
  isRegistered = true
  registerHooks({ resolve, load })
}

/** Where a package name leads when it is imported from `baseUrl`; `import.meta.resolve` only knows its own module. */
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

/** Node strips no types below node_modules, where our own examples are once the package is installed. */
const load: LoadHookSync = (url, context, nextLoad) => {
  if (!url.startsWith(examplesUrl.href) || !url.includes('/node_modules/') || !url.endsWith('.ts')) {
    return nextLoad(url, context)
  }
  const source = stripTypeScriptTypes(readFileSync(fileURLToPath(url), 'utf8'))
  return { format: 'module', source, shortCircuit: true }
}
