import { expect, test } from 'vitest'
import { KnownCatalogues, NameCheck, OfferedTools, type ServerTool, type ToolCatalogue } from './tool-catalogue.ts'

const tool = (name: string): ServerTool => ({
  server: 'one',
  name,
  inputSchema: {},
  isReadOnly: false,
  isIdempotent: false,
})

test('names in allow and deny are checked against the full list, with the nearest names', () => {
  const offered = new OfferedTools('one', { allow: ['read', 'web_search'], deny: ['writ', 'zzz'], prefix: 'web_' })
  offered.learn(['read', 'write', 'search'].map(tool))
  expect(offered.catalogue?.unlisted).toEqual([
    { option: 'allow', name: 'web_search', nearest: 'search' },
    { option: 'deny', name: 'writ', nearest: 'write' },
    { option: 'deny', name: 'zzz' },
  ])
})

test('a denied tool that is no longer listed is reported, though the offered tools are the same', () => {
  const offered = new OfferedTools('one', { deny: ['write'] })
  offered.learn([tool('read'), tool('write')])
  const first = offered.catalogue
  expect(first).not.toHaveProperty('unlisted')
  offered.learn([tool('write'), tool('read')])
  expect(offered.catalogue).toBe(first)
  expect(offered.learn([tool('read')])).toBeUndefined()
  expect(offered.catalogue).toMatchObject({ digest: first?.digest, unlisted: [{ option: 'deny', name: 'write' }] })
})

const listOf = (server: string, ...unlisted: string[]): ToolCatalogue => ({
  server,
  tools: [],
  digest: 'd',
  ...(unlisted.length > 0 && { unlisted: unlisted.map((name) => ({ option: 'deny', name })) }),
})

test('names missing from the first list are refused each time; the error shows a few', () => {
  const names = new NameCheck()
  for (let time = 0; time < 2; time += 1) expect(() => names.check(listOf('one', 'a'))).toThrow('"deny" names "a"')
  expect(() => names.check(listOf('one', 'a', 'b', 'c', 'd', 'e', 'f', 'g'))).toThrow(/names "e".*list; and 2 more \(/)
})

test('once a list had all names, names missing later are reported once per list', () => {
  const names = new NameCheck()
  expect(names.check(listOf('one'))).toEqual([])
  expect(names.check(listOf('one', 'a'))).toEqual(['a'])
  expect(names.check(listOf('one', 'a'))).toEqual([])
  expect(names.check(listOf('one', 'a', 'b'))).toEqual(['a', 'b'])
  expect(names.check(listOf('one'))).toEqual([])
  expect(names.check(listOf('one', 'a'))).toEqual(['a'])
  // Another server is another matter.
  expect(() => names.check(listOf('two', 'a'))).toThrow('"two"')
})

const list = (name: string, digest: string) => ({ server: name, digest, tools: [] })

test('equal lists share one object, and equal sets of lists share one array', () => {
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

test('a server whose list always changes does not fill the memory', () => {
  const known = new KnownCatalogues()
  const first = known.together([list('a', 'first')])
  for (let index = 0; index < 40; index += 1) known.together([list('a', String(index))])
  expect(known.together([list('a', 'first')])).not.toBe(first)
  const last = known.together([list('a', '39')])
  expect(known.together([list('a', '39')])).toBe(last)
})
