import { getCompileCacheDir } from 'node:module'
import { dirname } from 'node:path'

/** Says that the folder was named by us. */
const mark = 'MILLRACE_COMPILE_CACHE'

/**
 * The variables of a thread or process that is started, with where this one keeps compiled code: it begins anew, and only a
 * variable tells it. They are not our own, because the programs that environments start would have them, too, and V8 tells
 * less of what ran of code that it had compiled before: a coverage that is rewarded would depend on who ran first.
 */
export function startVariables(): NodeJS.ProcessEnv {
  const folder = getCompileCacheDir()
  if (folder === undefined || process.env['NODE_COMPILE_CACHE'] !== undefined) return process.env
  return { ...process.env, NODE_COMPILE_CACHE: dirname(folder), [mark]: '1' }
}

/** Where others' code is about to be loaded: Node has read them. */
export function dropStartVariables(): void {
  if (process.env[mark] === undefined) return
  delete process.env['NODE_COMPILE_CACHE']
  delete process.env[mark]
}
