import { createServer } from 'node:http'
import { once } from 'node:events'
import { mkdir, mkdtempDisposable, writeFile } from 'node:fs/promises'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { expect, test } from 'vitest'
import type { JsonObject } from '../schema/index.ts'
import { readAgents } from './read-config.ts'

interface Given {
  readonly configs?: readonly string[]
  readonly env?: Readonly<Record<string, string>>
  readonly overrides?: JsonObject
}

/** The agents of configurations in a folder, each with the fields that tests look at. */
async function agentsOf(
  files: Readonly<Record<string, string>>,
  { configs = ['main.yaml'], env = {}, overrides }: Given = {},
) {
  await using folder = await mkdtempDisposable(join(tmpdir(), 'millrace-nemo-gym-'))
  for (const [name, text] of Object.entries(files)) {
    await mkdir(dirname(join(folder.path, name)), { recursive: true })
    await writeFile(join(folder.path, name), text)
  }
  const { agents } = await readAgents({ configs, overrides, cwd: folder.path, env })
  return Object.fromEntries(
    Array.from(agents, ([name, { kind, server, url, field }]) => [
      name,
      { kind, server, url, steps: field('max_steps') },
    ]),
  )
}

const server = (more: string): string => `
res:
  resources_servers:
    counter:
      entrypoint: app.py
      judge: {base_url: '\${judge_base_url}', api_key: ???}
${more}`
const agent = (more = ''): string => `
ag:
  responses_api_agents:
    simple_agent:
      resources_server: {type: resources_servers, name: res}
      model_server: {type: responses_api_models, name: policy_model}
${more}`
const found = { kind: 'simple_agent', server: 'res', url: 'http://127.0.0.1:8000', steps: undefined }

test('an agent is found with the address of its resources server; what only models need may be missing', async () => {
  const main = server('      port: 8000') + agent('      max_steps: 3')
  expect(await agentsOf({ 'main.yaml': main })).toEqual({ ag: { ...found, steps: 3 } })
  expect(await agentsOf({ 'main.yaml': server('') + agent() })).toEqual({ ag: { ...found, url: undefined } })
  expect(await agentsOf({ 'main.yaml': server('      port: 8000') })).toEqual({ res: found })
})

test('without agents, each resources server has one of its own name', async () => {
  const other = server('      port: 8001').replace('res:', 'other:')
  const agents = await agentsOf({ 'main.yaml': server('      port: 8000') + other })
  expect(agents).toEqual({ res: found, other: { ...found, server: 'other', url: 'http://127.0.0.1:8001' } })
})

test('references, variables and defaults are followed', async () => {
  const main = `${server('      host: ${oc.env:HOST,${hosts.first}}\n      port: ${ports.gym}')}
ports: {gym: '\${oc.select:none.such,\${env:PORT}}'}
hosts: {first: '10.0.0.\${last}'}
last: 7${agent('      max_steps: ${oc.env:STEPS,4}')}`
  const url = (text: string) => ({ ag: { ...found, url: text, steps: 4 } })
  expect(await agentsOf({ 'main.yaml': main }, { env: { PORT: '9' } })).toEqual(url('http://10.0.0.7:9'))
  expect(await agentsOf({ 'main.yaml': main }, { env: { PORT: '9', HOST: 'gym' } })).toEqual(url('http://gym:9'))
})

test('files are merged in the order of NeMo Gym, and values that are given by hand win', async () => {
  const files = {
    'main.yaml': `config_paths: [servers/res.yaml]\ndefault_host: here${agent()}`,
    'servers/res.yaml': `config_paths: [servers/more.yaml]${server('      port: 1')}`,
    'servers/more.yaml': 'res: {resources_servers: {counter: {port: 2}}}',
    'env.yaml': 'res: {resources_servers: {counter: {host: there}}}',
    'second.yaml': 'res: {resources_servers: {counter: {port: 3}}}',
  }
  expect(await agentsOf(files)).toEqual({ ag: { ...found, url: 'http://there:2' } })
  const overrides = { res: { resources_servers: { counter: { port: 8000, host: '127.0.0.1' } } } }
  expect(await agentsOf(files, { configs: ['main.yaml', 'second.yaml'], overrides })).toEqual({ ag: found })
})

test('a server that others inherit from is none itself', async () => {
  const main = `${server('      port: 8000')}${agent('      max_steps: 2')}
special_res: {_inherit_from: res, resources_servers: {counter: {port: 8001}}}
special:
  _inherit_from: ag
  responses_api_agents: {simple_agent: {resources_server: {name: special_res}}}`
  const url = 'http://127.0.0.1:8001'
  expect(await agentsOf({ 'main.yaml': main })).toEqual({ special: { ...found, server: 'special_res', url, steps: 2 } })
})

test('the head server has the configuration with all addresses', async () => {
  const http = createServer((request, response) => {
    response.end(request.url === '/global_config_dict_yaml' ? JSON.stringify(server('      port: 8000') + agent()) : '')
  }).listen(0, '127.0.0.1')
  await once(http, 'listening')
  const head = `http://127.0.0.1:${(http.address() as AddressInfo).port}`
  expect(await agentsOf({}, { configs: [head] })).toEqual({ ag: found })
  http.close()
  await once(http, 'close')
})

test.each([
  [
    'res.resources_servers.counter.port is ???, so it must be set: add --nemo-gym.res.',
    server('      port: ???') + agent(),
  ],
  [
    'res.resources_servers.counter.port refers to nothing.here, which is not set',
    server('      port: ${nothing.here}') + agent(),
  ],
  ['needs the variable NO_PORT, which is not set', server('      port: ${oc.env:NO_PORT}') + agent()],
  ['refers to itself', `${server('      port: ${a}')}\na: \${b}\nb: \${a}${agent()}`],
  ['uses ${hydra:…}, which is not known here', server('      port: ${hydra:x}') + agent()],
  ['uses the resources server res, which the configuration does not have; did you mean res2?', agent() + '\nres2: {}'],
  ['main.yaml: it is not YAML', 'a: ['],
  ['main.yaml is not a configuration', '- a'],
  ['main.yaml has no resources server', 'a: 1'],
  ['there is no file gone.yaml in', 'config_paths: [gone.yaml]'],
  ['inherits from nobody, which is not there', `${server('')}${agent()}\nx: {_inherit_from: nobody}`],
])('what is wrong is told: %s', async (problem, main) => {
  await expect(agentsOf({ 'main.yaml': main })).rejects.toThrow(problem)
})

test('a value for a key that the configuration neither has nor refers to is refused', async () => {
  const main = `${server('      port: ${port}')}${agent()}last: 7\n`
  const of = async (overrides: JsonObject) => await agentsOf({ 'main.yaml': main }, { overrides })
  const given = { port: 8000, last: 8, judge_base_url: 'http://judge', default_host: '10.0.0.1', other: { a: 1 } }
  expect(await of(given)).toEqual({ ag: { ...found, url: 'http://10.0.0.1:8000' } })
  const refusal = '[config_invalid] --nemo-gym.ulr is no option and no key of the configuration; did you mean url?'
  await expect(of({ ulr: 'http://127.0.0.1:8000' })).rejects.toThrow(refusal)
  await expect(of({ lasst: 3 })).rejects.toThrow('did you mean last?')
  await expect(of({ judge_base_ulr: 'x' })).rejects.toThrow('did you mean judge_base_url?')
  await expect(of({ steps: 3 })).rejects.toThrow('no key of the configuration; leave it out')
})
