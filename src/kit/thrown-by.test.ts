import { expect, test } from 'vitest'
import { thrownBy } from './thrown-by.ts'

test('says whose code threw what, and of a long story the beginning', () => {
  expect(thrownBy('setup', 'boom', 'setup_failed')).toMatchObject({
    code: 'setup_failed',
    rawMessage: 'setup threw a value of type string: boom',
  })
  const { rawMessage } = thrownBy('setup', 'x'.repeat(5_000_000), 'setup_failed')
  expect(rawMessage).toMatch(/^setup threw a value of type string: x{16384}… \(4983616 characters more\)$/)
})
