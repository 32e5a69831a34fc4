import { MillraceError } from '../../../src/errors/index.ts'

/** The code of what the work throws or rejects with. */
export async function codeOf(work: () => unknown): Promise<string> {
  const error = await failureOf(work)
  return error instanceof MillraceError ? error.code : String(error)
}

/** What the work throws or rejects with. */
export async function failureOf(work: () => unknown): Promise<unknown> {
  try {
    await work()
  } catch (error) {
    return error
  }
  return 'no error'
}
