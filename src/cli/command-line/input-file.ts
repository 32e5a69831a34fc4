import { readFile } from 'node:fs/promises'
import { resolve } from 'node:path'
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
