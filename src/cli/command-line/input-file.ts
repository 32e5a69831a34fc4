import { readFile } from 'node:fs/promises'
import { resolve } from 'node:path'
import { parseDocument } from 'yaml'
import { type ErrorCode, MillraceError } from '../../errors/index.ts'

/** The text of a file that the command line names. */
export async function readInputFile(path: string, cwd: string, code: ErrorCode = 'file_not_found'): Promise<string> {
  try {
    return await readFile(resolve(cwd, path), 'utf8')
  } catch (cause) {
    throw new MillraceError(code, `cannot read ${path}; check the path`, { cause })
  }
}

export async function readJsonFile(path: string, cwd: string): Promise<unknown> {
  const text = await readInputFile(path, cwd)
  try {
    return JSON.parse(text)
  } catch (cause) {
    const { rawMessage } = MillraceError.from(cause, 'internal')
    throw new MillraceError('config_invalid', `${path} is not JSON: ${rawMessage}; correct it and run again`, { cause })
  }
}

export function parseYaml(text: string, shown: string): unknown {
  const document = parseDocument(text)
  const [mistake] = document.errors
  if (mistake) throw notYaml(shown, mistake)
  try {
    // An empty file is an empty configuration.
    return document.toJS() ?? {}
  } catch (error) {
    // What `*name` stands for is looked up only here.
    throw notYaml(shown, error)
  }
}

function notYaml(shown: string, cause: unknown): MillraceError {
  const causeText = cause instanceof Error ? cause.message : String(cause)
  // The other lines of the message draw the place; only the first one is shown, without its last colon.
  const problem = `it is not YAML: ${causeText.split(/:?\n/, 1)[0] ?? ''}`
  return new MillraceError('config_invalid', `${shown}: ${problem}`, { cause })
}
