import { expect } from 'vitest'
import { MillraceError } from '../../../src/errors/index.ts'

/** What it was rejected with, which must be an error of ours. */
export async function failureOf(work: Promise<unknown>): Promise<MillraceError> {
  const thrown = await work.then(
    () => 'it was not rejected',
    (reason: unknown) => reason,
  )
  expect(thrown).toBeInstanceOf(MillraceError)
  return thrown as MillraceError
}
