import { mkdtempDisposableSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { readGatewayConfig } from './gateway-config-file.ts'

const tenfold = (name: string): string => Array.from({ length: 10 }, () => `*${name}`).join(', ')

test.each([
  ['a name without an anchor', 'models: { m: *base }', 'it is not YAML: Unresolved alias'],
  [
    'names that stand for more than fits into memory',
    `a: &a [${'x, '.repeat(10)}]\nb: &b [${tenfold('a')}]\nc: &c [${tenfold('b')}]\nd: [${tenfold('c')}]`,
    'it is not YAML: Excessive alias count',
  ],
  ['half a list', 'keys: [', 'it is not YAML: Flow sequence'],
  [
    'a misspelt option of the simulator',
    'models: { toy: { simulator: { skil: 0.5 } } }',
    'gateway.yaml: models.toy.simulator: `skil` is not known; did you mean `skill`?',
  ],
  [
    'an alias for a model that is not there',
    'models: { toy: { simulator: {} } }\naliases: { gpt-4o: toi }',
    'gateway.yaml: alias gpt-4o refers to toi, which is not a model of the gateway; its models: toy; docs/gateway.md',
  ],
  [
    'an alias with the name of a model',
    'models: { toy: { simulator: {} }, other: { simulator: {} } }\naliases: { other: toy }',
    'gateway.yaml: aliases.other: a model has the same name, so clients could not request that model; rename one of them',
  ],
  [
    'a key of two tenants',
    'keys: [{ tenant: red, key: k }, { tenant: blue, key: k }]',
    'gateway.yaml: tenants red and blue have the same admin key; give each',
  ],
  [
    'a public url without a scheme',
    'publicUrl: gateway.example.com',
    'gateway.yaml: "gateway.example.com" is not a valid public',
  ],
])('%s is reported as an error in the file', async (_what, text, message) => {
  using folder = mkdtempDisposableSync(join(tmpdir(), 'millrace-config-'))
  writeFileSync(join(folder.path, 'gateway.yaml'), text)
  const reading = readGatewayConfig('gateway.yaml', { cwd: folder.path, env: {} }, { hasOtherBackends: false })
  await expect(reading).rejects.toMatchObject({ code: 'config_invalid', rawMessage: expect.stringContaining(message) })
})

test.each(['missing.yaml', 'missing.ts', '.'])(
  'an unreadable %s is reported as an error in the command',
  async (path) => {
    using folder = mkdtempDisposableSync(join(tmpdir(), 'millrace-config-'))
    const reading = readGatewayConfig(path, { cwd: folder.path, env: {} }, { hasOtherBackends: false })
    const rawMessage = `cannot read ${path}; check the path`
    await expect(reading).rejects.toMatchObject({ code: 'config_invalid', rawMessage })
  },
)
