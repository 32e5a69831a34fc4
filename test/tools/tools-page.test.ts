import { expect, test } from 'vitest'
import {
  httpServerSchema,
  readServerConfigs,
  stdioServerSchema,
} from '../../src/tools/mcp/config/read-server-configs.ts'
import { serverDefaults } from '../../src/tools/mcp/config/server-config.ts'
import { markedBlocks, page, tableRows } from '../support/pages.ts'

const tools = await page('docs/tools.md')

test('the documentation lists the fields of each kind of server', () => {
  const rows = tableRows(tools, 'Fields of a server')
  const of = (...kinds: string[]): string[] =>
    rows.flatMap(([field = '', kind = '']) => (kinds.includes(kind) ? [field] : []))
  expect(of('both', 'command').toSorted()).toEqual(Object.keys(stdioServerSchema.shape).toSorted())
  // `pool` is one of the options of both, and refused where there is none.
  expect([...of('both', 'URL'), 'pool'].toSorted()).toEqual(Object.keys(httpServerSchema.shape).toSorted())
})

test('the documentation gives the actual defaults', () => {
  const given = new Map(tableRows(tools, 'Fields of a server').map(([field, , , otherwise]) => [field, otherwise]))
  const thousands = (value: number): string => value.toLocaleString('en')
  const { startTimeoutMs, callTimeoutMs, pool, reconnect } = serverDefaults
  expect(given.get('startTimeoutMs')).toBe(thousands(startTimeoutMs))
  expect(given.get('callTimeoutMs')).toBe(thousands(callTimeoutMs))
  expect(given.get('pool')).toBe(`${pool.warm}, ${pool.max}, ${pool.maxUses}`)
  expect(given.get('reconnect')).toBe(`${reconnect.max} in ${thousands(reconnect.windowMs)}`)
})

test('the example configuration in the documentation is valid', () => {
  const [example] = markedBlocks(tools.text, 'servers')
  const servers = readServerConfigs(example?.code, 'docs/tools.md', { SEARCH_KEY: 'k' })
  expect(servers['search']).toMatchObject({ headers: { authorization: 'Bearer k' } })
  expect(servers['files']).toMatchObject({ args: expect.arrayContaining(['/tmp']) })
})
