import { expect, test } from 'vitest'
import { chatServer } from '../../apis/chat/write-reply.ts'
import { MillraceError } from '../../errors/index.ts'
import { errorBody } from './errors.ts'

test.for(['disk_full', 'store_failed', 'internal'] as const)('details of a server fault are hidden: %s', (code) => {
  const error = new MillraceError(code, 'the run in /data/runs cannot be written', { data: { folder: '/data/runs' } })
  const { error: shown } = errorBody(error)
  expect(shown.code).toBe(code)
  expect(JSON.stringify(shown)).not.toContain('/data')
  // Both servers have the same words for it.
  expect(chatServer.error(error).body).toMatchObject({ error: { message: shown.message } })
})

test('the reason of a client error is shown', () => {
  const error = new MillraceError('usage', 'a reward is a finite number', { data: { status: 400 } })
  expect(errorBody(error).error).toMatchObject({ code: 'usage', message: expect.stringContaining('finite') as string })
})
