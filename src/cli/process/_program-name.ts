import { existsSync } from 'node:fs'
import { delimiter, join } from 'node:path'
import type { Variables } from '../../kit/index.ts'

/**
 * How somebody calls this program again, in commands that are shown to be copied. What npx or a package's script started is
 * on the PATH only for as long as it runs; `npx millrace` works for them, and in a folder that has it installed.
 */
export function programName(env: Variables): 'millrace' | 'npx millrace' {
  const isLent = env['npm_command'] !== undefined || env['npm_config_user_agent'] !== undefined
  const folders = env['PATH']?.split(delimiter) ?? []
  const isInstalled = folders.some((folder) => folder !== '' && existsSync(join(folder, 'millrace')))
  return isInstalled && !isLent ? 'millrace' : 'npx millrace'
}
