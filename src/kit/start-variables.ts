import { getCompileCacheDir } from 'node:module'
import { dirname } from 'node:path'

/** Marks that the compile cache's folder was named by us. */
const mark = 'MILLRACE_COMPILE_CACHE'

/**
 * The variables for a thread or process that is started, with the folder of this one's compile cache, which a new one learns
 * only from a variable. The variable is not set for ourselves, because the programs that environments start would inherit it,
 * and V8 reports less coverage for code from the cache: a reward by coverage would depend on who ran first.
 */
export function startVariables(): NodeJS.ProcessEnv {
  const folder = getCompileCacheDir()
  if (folder === undefined || process.env['NODE_COMPILE_CACHE'] !== undefined) return process.env
  return { ...process.env, NODE_COMPILE_CACHE: dirname(folder), [mark]: '1' }
}

/** Removes our variables before a user's code is loaded; Node has read them by then. */
export function dropStartVariables(): void {
  if (process.env[mark] === undefined) return
  delete process.env['NODE_COMPILE_CACHE']
  delete process.env[mark]
}
