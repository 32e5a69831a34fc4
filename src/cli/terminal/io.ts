import type { EventEmitter } from 'node:events'
import { existsSync, readFileSync } from 'node:fs'
import { delimiter, join } from 'node:path'
import process from 'node:process'
import { parseEnv } from 'node:util'
import type { Variables } from '../../kit/index.ts'
import { Output, type OutputStream } from './output.ts'

/** A command's whole access to its process, so that a test can replace it. */
export interface CommandIo extends Disposable {
  readonly stdout: Output
  readonly stderr: Output
  readonly env: Record<string, string | undefined>
  readonly cwd: string
  readonly program: string
  /** Emits SIGINT, SIGTERM, SIGHUP and exit. */
  readonly events: Pick<EventEmitter, 'on' | 'off'>
}

export interface ProcessParts extends Partial<Pick<CommandIo, 'env' | 'cwd' | 'events'>> {
  readonly stdout?: OutputStream
  readonly stderr?: OutputStream
}

export function openIo(parts: ProcessParts = {}): CommandIo {
  const env = parts.env ?? process.env
  const stdout = new Output(parts.stdout ?? process.stdout, env)
  const stderr = new Output(parts.stderr ?? process.stderr, env)
  return {
    stdout,
    stderr,
    env,
    cwd: parts.cwd ?? process.cwd(),
    get program() {
      return programName(env)
    },
    events: parts.events ?? process,
    [Symbol.dispose]() {
      stdout[Symbol.dispose]()
      stderr[Symbol.dispose]()
    },
  }
}

/** The program in commands to be copied. Started by npx or a package's script, it is on the PATH only while it runs. */
export function programName(env: Variables): 'millrace' | 'npx millrace' {
  const isLent = env['npm_command'] !== undefined || env['npm_config_user_agent'] !== undefined
  const folders = env['PATH']?.split(delimiter) ?? []
  const isInstalled = folders.some((folder) => folder !== '' && existsSync(join(folder, 'millrace')))
  return isInstalled && !isLent ? 'millrace' : 'npx millrace'
}

const maxNamedLines = 5

/** Takes variables from `.env`; those that are set stay. The notice never quotes the file: any line may hold a key. */
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
