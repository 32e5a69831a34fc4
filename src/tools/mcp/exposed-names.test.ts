import { expect, test } from 'vitest'
import { exposedNames } from './_exposed-names.ts'

const of = (server: string, ...names: string[]) => names.map((wanted) => ({ server, wanted }))
const legal = /^[a-zA-Z0-9_-]{1,64}$/

test('names that every model API takes stay as they are', () => {
  expect(exposedNames(of('a', 'read', 'Write-2', '_x'))).toEqual(['read', 'Write-2', '_x'])
})

test('others are mapped to ones that are taken, the same each time', () => {
  const tools = of('a', 'files.read', 'files/write all', 'größe', '', 'x'.repeat(65), `${'x'.repeat(65)}y`)
  const names = exposedNames(tools)
  expect(names.slice(0, 4)).toEqual(['files_read', 'files_write_all', 'gr_e', '_'])
  expect(names[4]).toMatch(/^x{55}_[0-9a-f]{8}$/)
  for (const name of names) expect(name).toMatch(legal)
  expect(new Set(names).size).toBe(names.length)
  expect(exposedNames(tools)).toEqual(names)
})

test('a mapped name never takes that of another tool', () => {
  const [dotted, plain, slashed] = exposedNames([
    ...of('a', 'files.read'),
    ...of('b', 'files_read'),
    ...of('c', 'files/read'),
  ])
  expect(plain).toBe('files_read')
  expect(dotted).toMatch(/^files_read_[0-9a-f]{8}$/)
  expect(slashed).toMatch(/^files_read_[0-9a-f]{8}$/)
  expect(dotted).not.toBe(slashed)
})

test('two servers with one name are refused, with the way out', () => {
  expect(() => exposedNames([...of('web', 'search'), ...of('files', 'search')])).toThrow(
    '[config_invalid] the tool servers "web" and "files" both have a tool "search": set "prefix" for one of them, such as "prefix": "files_"',
  )
})
