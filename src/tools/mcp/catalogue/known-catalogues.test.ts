import { expect, test } from 'vitest'
import { KnownCatalogues } from './known-catalogues.ts'

const list = (server: string, digest: string) => ({ server, digest, tools: [] })

test('equal lists are one object, and the same lists one array', () => {
  const known = new KnownCatalogues()
  const first = known.together([list('a', '1'), list('b', '1')])
  expect(known.together([list('a', '1'), list('b', '1')])).toBe(first)
  const changed = known.together([list('a', '1'), list('b', '2')])
  expect(changed).not.toBe(first)
  expect(changed[0]).toBe(first[0])
  expect(known.together([list('a', '1')])).toHaveLength(1)
  expect(known.together([list('b', '1'), list('a', '1')])).not.toBe(first)
  expect(known.together(first)).toBe(first)
})

test('a server that never lists the same twice is not remembered for ever', () => {
  const known = new KnownCatalogues()
  const first = known.together([list('a', 'first')])
  for (let index = 0; index < 40; index += 1) known.together([list('a', String(index))])
  expect(known.together([list('a', 'first')])).not.toBe(first)
  const last = known.together([list('a', '39')])
  expect(known.together([list('a', '39')])).toBe(last)
})
