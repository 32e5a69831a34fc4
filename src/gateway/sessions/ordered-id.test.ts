import { expect, test } from 'vitest'
import { orderedId } from './_ordered-id.ts'

test('ids stand in the order they were made, those of one moment too', () => {
  const ids = Array.from({ length: 3_000 }, () => orderedId('ses'))
  expect(ids.toSorted()).toEqual(ids)
})

test('ids of one moment differ in what cannot be guessed, not only in their number', () => {
  const secrets = Array.from({ length: 3_000 }, () => orderedId('grp').slice('grp_'.length + 10))
  expect(new Set(secrets).size).toBe(3_000)
  for (const secret of secrets) expect(secret).toMatch(/^[\w-]{12}$/)
})
