import { expect, test } from 'vitest'
import { onFirstUse } from './on-first-use.ts'

test('a package is loaded once', () => {
  const load = onFirstUse('pino')
  expect(load().pino({ level: 'silent' }).isLevelEnabled('error')).toBe(false)
  expect(load()).toBe(load())
})
