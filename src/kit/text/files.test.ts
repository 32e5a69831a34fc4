import type * as Pino from 'pino'
import { expect, test } from 'vitest'
import { onFirstUse } from './files.ts'

test('onFirstUse() loads a package once', () => {
  const loadPino = onFirstUse((load) => load('pino') as typeof Pino)
  expect(loadPino().pino({ level: 'silent' }).isLevelEnabled('error')).toBe(false)
  expect(loadPino()).toBe(loadPino())
})
