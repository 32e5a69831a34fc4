import { existsSync } from 'node:fs'
import { delimiter, join } from 'node:path'
import type { Variables } from '../../kit/index.ts'

/**
 * The name of this program in commands that are shown to be copied. A program started by npx or a package's script is on the
 * PATH only while it runs; `npx millrace` works then, and in any folder that has it installed.
 */
export function programName(env: Variables): 'millrace' | 'npx millrace' {
  const isLent = env['npm_command'] !== undefined || env['npm_config_user_agent'] !== undefined
  const folders = env['PATH']?.split(delimiter) ?? []
  const isInstalled = folders.some((folder) => folder !== '' && existsSync(join(folder, 'millrace')))
  return isInstalled && !isLent ? 'millrace' : 'npx millrace'
}
