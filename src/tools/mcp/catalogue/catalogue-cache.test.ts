import { expect, test } from 'vitest'
import { CatalogueCache, type ListedServer } from './catalogue-cache.ts'
import type { ServerTool } from './tool-catalogue.ts'

const tools: readonly ServerTool[] = []
const server: ListedServer = {
  name: 'one',
  config: { command: 'node', args: ['a'], env: { A: '1', B: '2' }, cwd: '/' },
  version: 'v1',
}

test('a list is cached for the same command, arguments, variables, folder and version', () => {
  const cache = new CatalogueCache()
  cache.set(server, tools)
  const same = { ...server, config: { ...server.config, env: { B: '2', A: '1' }, callTimeoutMs: 5 } }
  expect(cache.get(same)).toBe(tools)
})

test.each<[string, Partial<ListedServer>]>([
  ['name', { name: 'two' }],
  ['version', { version: 'v2' }],
  ['command', { config: { ...server.config, command: 'deno' } }],
  ['arguments', { config: { ...server.config, args: ['a', 'b'] } }],
  ['variables', { config: { ...server.config, env: { A: '1' } } }],
  ['folder', { config: { ...server.config, cwd: '/tmp' } }],
])('a list is not cached for another %s', (_what, other) => {
  const cache = new CatalogueCache()
  cache.set(server, tools)
  expect(cache.get({ ...server, ...other })).toBeUndefined()
})

test('a change removes the list, and the list of a URL is never cached', () => {
  const cache = new CatalogueCache()
  cache.set(server, tools)
  cache.forget(server)
  expect(cache.get(server)).toBeUndefined()
  const remote = { ...server, config: { url: 'http://127.0.0.1' } }
  cache.set(remote, tools)
  expect(cache.get(remote)).toBeUndefined()
})

test('the oldest list is removed when the cache is full', () => {
  const cache = new CatalogueCache()
  const numbered = (index: number): ListedServer => ({ ...server, version: `v${index}` })
  for (let index = 0; index < 257; index += 1) cache.set(numbered(index), tools)
  expect([cache.get(numbered(0)), cache.get(numbered(1)), cache.get(numbered(256))]).toEqual([undefined, tools, tools])
})
