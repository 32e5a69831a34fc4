import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { parseEnv } from 'node:util'

const maxNamedLines = 5

/**
 * Takes variables from `.env` in the working folder, if there is one; variables that are already set stay. Returns what to
 * tell the user about it, which never quotes the file: a line that is not understood may hold a key.
 */
export function loadEnvFile(cwd: string, env: Record<string, string | undefined>): string | undefined {
  let text: string
  try {
    // Some editors begin a file with a byte order mark, which would become part of the first name.
    text = readFileSync(join(cwd, '.env'), 'utf8').replace(/^\uFEFF/, '')
  } catch (error) {
    const { code = '' } = error as NodeJS.ErrnoException
    // A folder of that name is somebody else's.
    return ['ENOENT', 'ENOTDIR', 'EISDIR'].includes(code) ? undefined : `.env cannot be read (${code}) and is ignored`
  }
  for (const [name, value] of Object.entries(parseEnv(text))) env[name] ??= value
  return malformedLines(text)
}

const quotedValue = /^([^#\n=]*=[ \t]*)(["'`])[^]*?\2/gm
const understood = /^\s*($|#|(export\s+)?[\w.-]+\s*=)/

function malformedLines(text: string): string | undefined {
  // The lines of a quoted value look like anything; without their text they still count.
  const outline = text.replaceAll(quotedValue, (whole, start: string) => start + whole.replaceAll(/[^\n]/g, ''))
  const numbers = outline.split('\n').flatMap((line, index) => (understood.test(line) ? [] : [index + 1]))
  if (numbers.length === 0) return undefined
  const more = numbers.length > maxNamedLines ? ` and ${numbers.length - maxNamedLines} more` : ''
  const named = numbers.slice(0, maxNamedLines).join(', ') + more
  return numbers.length === 1
    ? `line ${named} of .env is not NAME=value and is ignored`
    : `lines ${named} of .env are not NAME=value and are ignored`
}
