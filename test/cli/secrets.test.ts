import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import { fakeProcess } from '../support/cli/fake-terminal.ts'
import { main } from '../../src/cli/main.ts'
import { ScriptedServer, sendJson } from '../support/inference/scripted-server.ts'
import { echoKinds, startEchoServer } from '../support/echo-server.ts'
import { fixture, millrace, startMillrace, type Running } from '../support/cli/millrace-process.ts'

const places = [
  'Key',
  'Header',
  'Query',
  'JudgeKey',
  'Proxy',
  'Path',
  'Filled',
  'Tenant',
  'Admin',
  'Access',
  'McpHeader',
  'McpFilled',
  'McpQuery',
  'McpEnv',
] as const

/** The part of each secret that every way of escaping leaves as it is, and that is looked for. */
const coreOf = (place: string): string => `canary${place}9f3c1d`
/** A distinct secret for each place, with characters that JSON, URLs and pages escape. */
const canary = Object.fromEntries(places.map((place) => [place, `${coreOf(place)}/+"&=`])) as Record<
  (typeof places)[number],
  string
>

/** Everything that left a process or is in a folder, and which secrets are in it. */
class Leaks {
  readonly texts = new Map<string, string>()

  add(where: string, text: string): void {
    this.texts.set(where, (this.texts.get(where) ?? '') + text)
  }

  async addFolder(folder: string): Promise<void> {
    for (const entry of await readdir(folder, { recursive: true, withFileTypes: true })) {
      if (!entry.isFile()) continue
      const path = join(entry.parentPath, entry.name)
      this.add(path.slice(folder.length + 1), await readFile(path, 'latin1'))
    }
  }

  /** Each secret with the place where it was found. */
  leaks(): string[] {
    return [...this.texts].flatMap(([where, text]) =>
      places
        .filter((place) => formsOf(place).some((form) => text.includes(form)))
        .map((place) => `${place} in ${where}`),
    )
  }
}

/** The text that is looked for, as it is and as base64 has it wherever it begins. */
function formsOf(place: string): string[] {
  const inBase64 = [0, 1, 2].map((before) =>
    Buffer.from('x'.repeat(before) + coreOf(place))
      .toString('base64')
      .slice(4, -4),
  )
  return [coreOf(place), ...inBase64]
}

interface Scene extends AsyncDisposable {
  readonly cwd: string
  readonly runs: string
  readonly env: Readonly<Record<string, string>>
  readonly echo: ScriptedServer
  readonly collector: ScriptedServer
  readonly found: Leaks
  /** Runs a command to its end; all that it says is looked at. */
  readonly run: (...words: readonly string[]) => Promise<string>
  /** The same for a command that only reads runs, in this process. */
  readonly read: (...words: readonly string[]) => Promise<void>
}

async function openScene(): Promise<Scene> {
  await using owned = new AsyncDisposableStack()
  const { root: cwd } = owned.use(await temporaryRuns())
  const echo = owned.use(await startEchoServer())
  const collector = owned.use(await ScriptedServer.start((response) => sendJson(response, {})))
  const runs = join(cwd, 'runs')
  await mkdir(runs)
  const env = {
    MILLRACE_RUNS: runs,
    MODEL_KEY: canary.Key,
    JUDGE_KEY: canary.JudgeKey,
    PATH_TOKEN: encodeURIComponent(canary.Path),
    FILLED: canary.Filled,
    TENANT_KEY: canary.Tenant,
    MILLRACE_ADMIN_KEY: canary.Admin,
    MILLRACE_API_KEY: canary.Access,
    MCP_FILLED: canary.McpFilled,
    ORIGIN: echo.origin,
    // The judge is reached through a proxy that wants a password.
    http_proxy: `http://user:${encodeURIComponent(canary.Proxy)}@${new URL(echo.origin).host}`,
    OTEL_EXPORTER_OTLP_ENDPOINT: collector.origin,
  }
  const backend = {
    url: `${echo.url}?sig=${encodeURIComponent(canary.Query)}`,
    apiKeyEnv: 'MODEL_KEY',
    headers: { 'x-route': canary.Header },
  }
  const models = {
    policy: { upstreamName: 'm', maxTries: 1, backends: [backend] },
    judge: { upstreamName: 'm', maxTries: 1, backends: [{ url: 'http://judge.test/v1', apiKeyEnv: 'JUDGE_KEY' }] },
  }
  await writeFile(join(cwd, 'models.json'), JSON.stringify(models))
  const found = new Leaks()
  const kept = owned.move()
  return {
    cwd,
    runs,
    env,
    echo,
    collector,
    found,
    run: async (...words) => {
      const { code, stdout, stderr } = await millrace({ cwd, env }, ...words)
      found.add(`millrace ${words[0]}`, `${code}\n${stdout}\n${stderr}`)
      return stdout + stderr
    },
    read: async (...words) => {
      const parts = fakeProcess({ env })
      const code = await main(words, parts)
      found.add(`millrace ${words[0]}`, parts.stdout.text + parts.stderr.text)
      expect({ words, code }).toEqual({ words, code: 0 })
    },
    [Symbol.asyncDispose]: () => kept.disposeAsync(),
  }
}

/** Asserts that these secrets reached a server, and that none of all is in anything that was found. */
function expectNoLeaks({ echo, collector, found }: Scene, sent: readonly (typeof places)[number][]): void {
  found.add('spans', collector.requests.map(({ body }) => body).join('\n'))
  const received = JSON.stringify(echo.requests.map(({ path, headers }) => [path, headers]))
  expect(sent.filter((place) => !formsOf(place).some((form) => received.includes(form)))).toEqual([])
  expect(found.leaks()).toEqual([])
}

async function listening(running: Running, words: string): Promise<string> {
  await running.shows('stdout', words)
  return new RegExp(`${words}(\\S+)`).exec(running.stdout())?.[1] ?? ''
}

async function endOf(running: Running, { found }: Scene, name: string): Promise<string> {
  running.process.kill('SIGTERM')
  const { stdout, stderr } = await running.ended
  found.add(name, stdout + stderr)
  return stderr
}

const model = ['-m', 'policy', '--judge', 'judge', '--models', 'models.json']
const kinds = `--env.kinds=${JSON.stringify(echoKinds)}`

test('eval redacts secrets that a model echoes in its output, files and spans', async () => {
  await using scene = await openScene()
  const { found, runs } = scene
  const refused = await scene.run('eval', fixture('echoes.ts'), ...model, kinds, '--run', 'refused', '--debug')
  expect(refused).toContain('[redacted]')
  const words = [fixture('echoes.ts'), ...model, kinds, '--no-preflight', '--retries', '0', '--max-wait', '1s']
  const shown = await scene.run('eval', ...words, '--run', 'whole', '--json')
  expect(shown.split('[redacted]').length).toBeGreaterThan(echoKinds.length)
  await scene.run('eval', ...words, '--run', 'streamed', '--stream', '--workers', '1')
  for (const run of ['whole', 'streamed']) {
    await scene.read('show', run)
    await scene.read('show', run, '--outcome', 'any', '--json')
    await scene.read('show', run, '0-0')
    await scene.read('export', run)
    await scene.read('doctor', run, '--json')
  }
  await scene.read('list', '--json')
  await found.addFolder(runs)
  expect(found.texts.get('whole/rollouts.jsonl')).toContain('[redacted]')
  expect(found.texts.get('whole/run.json')).toContain('"x-route": "[redacted]"')
  expectNoLeaks(scene, ['Key', 'Header', 'Query', 'JudgeKey', 'Proxy'])
})

test('serve redacts secrets that a model echoes in its replies, log and metrics', async () => {
  await using scene = await openScene()
  const { cwd, env, found, runs } = scene
  const words = ['--env.kinds=[]', '--no-preflight', '--retries', '0', '--max-wait', '1s', '--run', 'served']
  await using running = startMillrace({ cwd, env }, 'serve', fixture('echoes.ts'), ...model, ...words, '--port', '0')
  const url = await listening(running, 'serving on ')
  const headers = { authorization: `Bearer ${canary.Access}`, 'content-type': 'application/json' }
  const tasks = echoKinds.flatMap((kind) => ['policy', 'judge', 'child'].map((who) => ({ who, kind })))
  const replied = await fetch(`${url}/v1/rollouts`, { method: 'POST', headers, body: JSON.stringify({ tasks }) })
  const reply = await replied.text()
  expect(reply).toContain('[redacted]')
  found.add('the reply', reply)
  for (const path of ['/metrics', '/v1/requests', '/ready']) {
    found.add(path, await (await fetch(url + path, { headers })).text())
  }
  // Also as it is while the server runs: what is not in the database yet is in its log.
  await found.addFolder(runs)
  expect(await endOf(running, scene, 'serve')).toContain('[redacted]')
  await found.addFolder(runs)
  expectNoLeaks(scene, ['Key', 'Header', 'Query', 'JudgeKey', 'Proxy'])
})

test('the gateway redacts secrets that a backend echoes in the replies of every API, its log, record and metrics', async () => {
  await using scene = await openScene()
  const { cwd, env, found, runs, run, read } = scene
  const base = '${ORIGIN}/${PATH_TOKEN}'
  const backend = (path: string, more: object = {}): object => ({
    url: `${base}${path}/v1?sig=${encodeURIComponent(canary.Query)}`,
    apiKeyEnv: 'MODEL_KEY',
    headers: { 'x-route': canary.Header, 'x-filled': 'prefix ${FILLED}' },
    ...more,
  })
  const modelOf = (api: string, ...backends: object[]): object => ({ api, upstreamName: 'm', maxTries: 1, backends })
  const config = {
    models: {
      chat: modelOf('chat', backend('')),
      responses: modelOf('responses', backend('')),
      messages: modelOf('messages', backend('')),
      native: modelOf('chat', backend('', { engine: 'sglang' })),
      away: modelOf('chat', backend('/broken')),
    },
    keys: [{ tenant: 'research', key: '${TENANT_KEY}' }],
    bounds: { maxWaitMs: 1000 },
  }
  const refusing = { models: { chat: modelOf('chat', backend('/refusing')) } }
  await writeFile(join(cwd, 'gateway.yaml'), JSON.stringify(config))
  await writeFile(join(cwd, 'refusing.yaml'), JSON.stringify(refusing))
  expect(await run('gateway', '--config', 'refusing.yaml', '--port', '0', '--debug')).toContain('[redacted]')

  await using running = startMillrace({ cwd, env }, 'gateway', '--config', 'gateway.yaml', '--port', '0')
  const url = await listening(running, 'gateway on ')
  const post = async (path: string, body: object, key: string): Promise<string> => {
    const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' }
    const response = await fetch(url + path, { method: 'POST', headers, body: JSON.stringify(body) })
    return `${response.status} ${JSON.stringify([...response.headers])} ${await response.text()}`
  }
  const started = await post('/v1/sessions', {}, canary.Tenant)
  const [, session = ''] = /"key":"([^"]+)"/.exec(started) ?? []
  for (const kind of echoKinds) {
    const messages = [{ role: 'user', content: `kind=${kind}.` }]
    for (const stream of [false, true]) {
      const asked: readonly [path: string, body: object][] = [
        ['/v1/chat/completions', { model: 'chat', messages }],
        ['/v1/chat/completions', { model: 'responses', messages }],
        ['/v1/responses', { model: 'responses', input: `kind=${kind}.` }],
        ['/v1/messages', { model: 'messages', max_tokens: 9, messages }],
        ['/v1/messages', { model: 'chat', max_tokens: 9, messages }],
        ['/generate', { model: 'native', text: `kind=${kind}.` }],
      ]
      const replies = asked.map(([path, body]) => post(path, { ...body, stream }, session))
      for (const reply of await Promise.all(replies)) found.add(`replies of kind ${kind}`, reply)
    }
  }
  expect(found.texts.get('replies of kind status-400')).toContain('[redacted]')
  found.add('away', await post('/v1/chat/completions', { model: 'away', messages: [] }, canary.Tenant))
  for (const path of ['/metrics', '/v1/sessions', '/v1/export', '/v1/models', '/ready']) {
    const key = path === '/metrics' ? canary.Admin : canary.Tenant
    found.add(path, await (await fetch(url + path, { headers: { authorization: `Bearer ${key}` } })).text())
  }
  await found.addFolder(runs)
  const log = await endOf(running, scene, 'the gateway')
  expect(log).toContain('[redacted]')
  await read('show', 'gateway', '--json')
  await read('export', 'gateway')
  await found.addFolder(runs)
  expect(found.texts.get('gateway/run.json')).toContain('"x-filled": "[redacted]"')
  expectNoLeaks(scene, ['Key', 'Header', 'Query', 'Path', 'Filled'])
})

test('eval redacts secrets that a tool server echoes everywhere', async () => {
  await using scene = await openScene()
  const { cwd, echo, found, runs, run, read } = scene
  const local = { command: process.execPath, args: ['-e', 'console.error(process.env.TOKEN); process.exit(1)'] }
  const servers = {
    web: {
      url: `${echo.origin}/mcp?sig=${encodeURIComponent(canary.McpQuery)}`,
      headers: { 'x-route': canary.McpHeader, authorization: 'Bearer ${MCP_FILLED}' },
    },
    local: { ...local, env: { TOKEN: canary.McpEnv } },
  }
  const optional = Object.entries(servers).map(([name, server]) => [name, { ...server, required: false }] as const)
  // A run fails if a server that it needs cannot be opened, and says what failed; without one it goes on, and records that.
  const given = { web: { web: servers.web }, local: { local: servers.local }, both: Object.fromEntries(optional) }
  for (const [name, mcpServers] of Object.entries(given)) {
    const source = `
      import { defineEnvironment, z } from 'millrace'
      const mcpServers = ${JSON.stringify(mcpServers)}
      const task = z.object({})
      export default defineEnvironment({ name: '${name}', task, tasks: () => [{}], prompt: () => 'x', reward: () => 1, mcpServers })`
    await writeFile(join(cwd, `${name}.ts`), source)
    const shown = await run('eval', `./${name}.ts`, '-m', 'sim', '--retries', '0', '--run', name, '--json')
    expect(shown).toContain('[redacted]')
  }
  await read('show', 'both', '0-0')
  await read('export', 'both')
  await found.addFolder(runs)
  expect(found.texts.get('both/journal.sqlite')).toContain('[redacted]')
  expectNoLeaks(scene, ['McpHeader', 'McpFilled', 'McpQuery'])
})

test('a url with credentials is refused, and the error does not repeat them', async () => {
  await using scene = await openScene()
  const { host } = new URL(scene.echo.origin)
  const url = `${host}/v1?sig=${canary.Query}`
  for (const base of [
    `http://user:${coreOf('Key')}@${url}`,
    `htp://user:${coreOf('Key')}@${url}`,
    `user:${coreOf('Key')}@${url}`,
  ]) {
    const words = ['eval', 'arithmetic', '-m', 'm', '--base-url', base, '--limit', '1']
    expect(await scene.run(...words)).toContain(host)
    await scene.run('gateway', '--backend', base, '--port', '0')
  }
  await scene.found.addFolder(scene.runs)
  expectNoLeaks(scene, [])
})
