import { expect, test } from 'vitest'
import { chatServer } from '../../apis/chat/write-reply.ts'
import { MillraceError } from '../../errors/index.ts'
import { errorBody } from './errors.ts'

test.for(['disk_full', 'store_failed', 'internal'] as const)('a fault of the server is for its log: %s', (code) => {
  const error = new MillraceError(code, 'the run in /data/runs cannot be written', { data: { folder: '/data/runs' } })
  const { error: shown } = errorBody(error)
  expect(shown.code).toBe(code)
  expect(JSON.stringify(shown)).not.toContain('/data')
  // Both servers have the same words for it.
  expect(chatServer.error(error).body).toMatchObject({ error: { message: shown.message } })
})

test('whoever made a mistake is told what it is', () => {
  const error = new MillraceError('usage', 'a reward is a finite number', { data: { status: 400 } })
  expect(errorBody(error).error).toMatchObject({ code: 'usage', message: expect.stringContaining('finite') as string })
})
