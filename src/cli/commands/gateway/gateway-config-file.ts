import { existsSync } from 'node:fs'
import { resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import { registerResolver } from '../../../env/index.ts'
import { MillraceError } from '../../../errors/index.ts'
import { interpolate, parseYaml, Redaction } from '../../../kit/index.ts'
import { parseGatewayConfig, type GatewayConfig, type GatewayConfigContext } from '../../../serve/index.ts'
import { readInputFile } from '../../command-line/input-file.ts'
import type { CommandIo } from '../../terminal/io.ts'

/**
 * Reads `--config`: YAML (and so JSON), or a module whose default export is the same object. `secrets` are the values that came
 * from variables: they are used, but never written down.
 */
export async function readGatewayConfig(
  path: string,
  { cwd, env }: Pick<CommandIo, 'cwd' | 'env'>,
  context: GatewayConfigContext,
): Promise<{ readonly config: GatewayConfig; readonly secrets: readonly string[] }> {
  const file = resolve(cwd, path)
  const content = /\.[cm]?[jt]s$/.test(path)
    ? await loadModule(file, path)
    : // Not `file_not_found`: a configuration that is not there is a mistake in the command, as one that is wrong.
      parseYaml(await readInputFile(path, cwd, 'config_invalid'), path)
  const { value, filledIn } = interpolate(content, env, path)
  try {
    return { config: parseGatewayConfig(value, context), secrets: filledIn }
  } catch (error) {
    const redaction = new Redaction(filledIn)
    const failure = MillraceError.from(error, 'config_invalid')
    const problem = redaction.text(failure.rawMessage)
    throw invalid(path, `${problem}; docs/gateway.md lists the fields`, redaction.error(failure))
  }
}

async function loadModule(file: string, shown: string): Promise<unknown> {
  registerResolver()
  let module: Readonly<Record<string, unknown>>
  try {
    module = await import(pathToFileURL(file).href)
  } catch (error) {
    // The file itself may exist, and a module that it imports may be missing.
    if (existsSync(file)) throw invalid(shown, `it does not load: ${String(error)}`, error)
    throw new MillraceError('config_invalid', `cannot read ${shown}; check the path`, { cause: error })
  }
  if (module['default'] !== undefined) return module['default']
  throw invalid(shown, 'it has no default export; write `export default { models: { … } }`')
}

function invalid(shown: string, problem: string, cause?: unknown): MillraceError {
  return new MillraceError('config_invalid', `${shown}: ${problem}`, { cause })
}
