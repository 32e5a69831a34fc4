import { expect, test } from 'vitest'
import { declaredServers, serverConfigsOf } from './server-configs-of.ts'

const env = { BIN: 'node' }

test('the servers of an environment: given, made of its options, or none', () => {
  const servers = { files: { command: '${BIN}' } }
  expect(serverConfigsOf({ name: 'e', mcpServers: servers }, {}, env)).toEqual({ files: { command: 'node' } })
  const made = { name: 'e', mcpServers: ({ folder }: { folder: string }) => ({ files: { command: 'x', cwd: folder } }) }
  expect(serverConfigsOf(made, { folder: '/a' }, env)).toEqual({ files: { command: 'x', cwd: '/a' } })
  expect(serverConfigsOf({ name: 'e' }, {}, env)).toEqual({})
})

test('what is wrong is said of the environment, and nothing is filled in before', () => {
  const environment = { name: 'e', mcpServers: { files: { command: '${NOPE}' } } }
  expect(() => serverConfigsOf(environment, {}, env)).toThrow('mcpServers of e: files.command needs the variable NOPE')
  expect(declaredServers(environment, {})).toEqual({ servers: environment.mcpServers, where: 'mcpServers of e' })
})
