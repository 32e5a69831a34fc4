import { execFile } from 'node:child_process'
import { symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import { agentPackages } from '../../scripts/interop/agents/npm-agents.ts'
import { defaultGatewayBounds } from '../../src/serve/index.ts'
import { SimulatedFleet } from '../support/gateway/simulated-fleet.ts'
import { adminKey, TestGateway } from '../support/gateway/test-gateway.ts'
import { readGatewayConfig } from '../../src/cli/commands/gateway/gateway-config-file.ts'
import { markedBlocks, page, root, tableRows } from '../support/pages.ts'
import { startMillrace } from '../support/cli/millrace-process.ts'

const run = promisify(execFile)
const guide = await page('docs/gateway.md')
const outside = await page('docs/agents-outside.md')

test('the quick start runs as written, with curl and with the official clients', async () => {
  await using folder = await temporaryRuns()
  const cwd = folder.root
  const [command] = markedBlocks(guide.text, 'gateway-command')
  const words = command?.code.trim().split(' ').slice(2) ?? []
  await using gateway = startMillrace({ cwd }, ...words, '--port', '0')
  await gateway.shows('stdout', 'gateway on ')
  const [, host = ''] = /gateway on http:\/\/(\S+)/.exec(gateway.stdout()) ?? []
  const here = (code: string): string => code.replaceAll('localhost:8787', host)

  const [shell] = markedBlocks(guide.text, 'gateway-shell')
  const script = `${here(shell?.code ?? '')}\necho "\nkey $SESSION_KEY"`
  const { stdout } = await run('sh', ['-ec', script], { cwd, env: { PATH: process.env['PATH'] } })
  expect(stdout).toContain('"object":"chat.completion"')
  expect(stdout).toMatch(/"kind":"interaction","session":"ses_.*"task":"first"/)
  expect(stdout).toMatch(/"kind":"end","sessions":1,"rows":1/)
  const [, key = ''] = /^key (mrs-\S+)$/m.exec(stdout) ?? []

  await symlink(join(root, 'node_modules'), join(cwd, 'node_modules'))
  const examples = markedBlocks(guide.text, 'gateway-example')
  expect(examples.map(({ argument }) => argument)).toEqual(['openai.ts', 'anthropic.ts'])
  for (const { argument, code } of examples) {
    await writeFile(join(cwd, argument), here(code))
    const env = { PATH: process.env['PATH'], SESSION_KEY: key }
    const { stdout: said } = await run(process.execPath, ['--no-warnings', argument], { cwd, env })
    expect(said, argument).toMatch(/\w{3,}/)
  }
  const view = await fetch(`http://${host}/v1/models`, { headers: { 'x-api-key': key } })
  expect(view.status).toBe(200)
})

test('the JavaScript agents of the documentation run as written, and call a tool', async () => {
  await using folder = await temporaryRuns()
  const cwd = folder.root
  await using gateway = await TestGateway.start({
    models: [{ name: 'sim', simulator: { reasoning: true } }],
    aliases: { '*': 'sim' },
  })
  await symlink(join(root, 'node_modules'), join(cwd, 'node_modules'))
  const examples = markedBlocks(outside.text, 'agent-ci')
  expect(examples.map(({ argument }) => argument)).toEqual(['ai-sdk.ts', 'agents-sdk.ts'])
  for (const { argument, code } of examples) {
    const { key, id } = await gateway.startSession()
    await writeFile(join(cwd, argument), code.replaceAll('http://localhost:8787', gateway.url))
    const env = { PATH: process.env['PATH'], SESSION_KEY: key }
    const { stdout } = await run(process.execPath, ['--no-warnings', argument], { cwd, env })
    expect(stdout, argument).toContain('408')
    const { text } = await gateway.ask(`/v1/export?session=${id}&rows=merged`)
    expect(text.match(/"kind":"merged"/g)).toHaveLength(1)
    expect(text.match(/"interaction":/g)).toHaveLength(2)
  }
})

test('the example of the client runs as written', async () => {
  await using folder = await temporaryRuns()
  await using fleet = await SimulatedFleet.start({ count: 2 })
  const [example] = markedBlocks((await page('docs/library.md')).text, 'client-example')
  const file = join(folder.root, example?.argument ?? '')
  await writeFile(file, (example?.code ?? '').replace('http://localhost:8787', fleet.gateway.url))
  const env = { PATH: process.env['PATH'], GATEWAY_ADMIN_KEY: adminKey }
  const words = ['--no-warnings', '--import', join(root, 'test', 'own-sources.ts'), file]
  const { stdout } = await run(process.execPath, words, { cwd: folder.root, env })
  expect(stdout).toBe(fleet.servers.map((server) => `${fleet.idOf(server)} serving 8\n`).join(''))
  const { text } = await fleet.gateway.ask('/v1/export?rows=merged')
  expect(text.match(/"task":"t-1".*"reward":1,/g)).toHaveLength(8)
})

test('the page about agents names the tested versions', async () => {
  const tried = tableRows(outside, 'Tried')
    .map(([, version = '']) => version)
    .join(', ')
  const fromNpm = Object.entries(agentPackages).filter(([name]) => name !== 'zod')
  const { text } = await page('scripts/interop/requirements.txt')
  const fromPip = Array.from(text.matchAll(/^([\w-]+)(?:\[.*\])?==(\S+)$/gm), ([, name = '', version = '']) => [
    name,
    version,
  ])
  const clients = new Set(['anthropic', 'numpy', 'openai'])
  for (const [name = '', version] of [...fromNpm, ...fromPip]) {
    if (!clients.has(name)) expect(tried).toContain(`${name} ${version}`)
  }
})

test('the example configuration of the gateway is valid', async () => {
  await using folder = await temporaryRuns()
  const [block] = markedBlocks(guide.text, 'gateway-config')
  await writeFile(join(folder.root, 'gateway.yaml'), block?.code ?? '')
  const place = { cwd: folder.root, env: { RESEARCH_KEY: 'secret' } }
  const { config } = await readGatewayConfig('gateway.yaml', place, { hasOtherBackends: false })
  expect(config).toMatchObject({
    port: 8787,
    models: { policy: { maxConcurrency: 512 }, claude: { api: 'messages' } },
    keys: [{ tenant: 'research', key: 'secret' }],
    bounds: { maxBodyBytes: defaultGatewayBounds.maxBodyBytes },
  })
})

test('the example configuration for agents is valid', async () => {
  await using folder = await temporaryRuns()
  const [block] = markedBlocks(outside.text, 'agents-config')
  await writeFile(join(folder.root, 'gateway.yaml'), block?.code ?? '')
  const place = { cwd: folder.root, env: {} }
  const { config } = await readGatewayConfig('gateway.yaml', place, { hasOtherBackends: false })
  expect(config).toMatchObject({ models: { policy: {} }, aliases: { '*': 'policy' } })
})

test('every route and every limit is documented', async () => {
  const paths = tableRows(guide, 'Routes').map(([first = '']) => first)
  const bounds = tableRows(await page('docs/gateway-operations.md'), 'Limits').map(([first = '']) => first)
  const listed = paths.join(' ').replaceAll('<id>', '{id}')
  await using gateway = await TestGateway.start()
  for (const route of gateway.server.routes) {
    const path = route.replace(/^\w+ /, '').replace('/models/*', '/models/{model}')
    expect(listed, path).toContain(path.startsWith('/sessions/{id}/') ? '/sessions/{id}' : path)
  }
  for (const bound of Object.keys(defaultGatewayBounds)) expect(bounds.join(' ')).toContain(bound)
})
