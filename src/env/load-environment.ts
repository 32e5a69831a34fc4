import { fileURLToPath } from 'node:url'
import { MillraceError } from '../errors/index.ts'
import { isJsonObject } from '../schema/index.ts'
import { importModule } from './_import-module.ts'
import { followImports } from './_imported-files.ts'
import { loadFailure } from './_load-failure.ts'
import { locateEnvironment } from './_locate-environment.ts'
import { environmentOf, type LoadedEnvironment, type RawOptions } from './environment-of.ts'
import { registerResolver } from './register-resolver.ts'

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

/**
 * The environment that a module exports. `import` gives the exports of a CommonJS module as its default. If TypeScript
 * compiled the module from `export default`, which `__esModule` shows, the environment is the default of these exports.
 */
function exportedEnvironment(module: Exports): unknown {
  const found = environmentAmong(module)
  return isJsonObject(found) && '__esModule' in found ? environmentAmong(found) : found
}

function environmentAmong(exports: Exports): unknown {
  return exports['default'] ?? exports['environment']
}
