import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { parseEnv } from 'node:util'

/** Takes variables from `.env` in the working folder, if there is one; variables that are already set stay. */
export function loadEnvFile(cwd: string, env: Record<string, string | undefined>): void {
  let text: string
  try {
    text = readFileSync(join(cwd, '.env'), 'utf8')
  } catch {
    return
  }
  for (const [name, value] of Object.entries(parseEnv(text))) env[name] ??= value
}
