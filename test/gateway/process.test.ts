import { once } from 'node:events'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { SimulatorServer } from 'millrace'
import { temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import { authorized, startGateway } from '../support/gateway/gateway-process.ts'
import { millrace } from '../support/cli/millrace-process.ts'

const chat = { model: 'sim', messages: [{ role: 'user', content: 'hello' }] }

function post(url: string, body: unknown, key?: string): Promise<Response> {
  return fetch(url, { method: 'POST', headers: authorized(key), body: JSON.stringify(body) })
}

/** From now on. Before, a gateway that starts asks what it is. */
async function hang({ url }: SimulatorServer): Promise<void> {
  await fetch(new URL('/sim/settings', url), { method: 'POST', body: JSON.stringify({ 'faults.hang': 1 }) })
}

test('SIGTERM drains: running requests are answered, then the process ends', async () => {
  await using runs = await temporaryRuns()
  await using simulator = await SimulatorServer.start({ ttftMs: 700, spread: 0 })
  await using gateway = await startGateway(runs.root, '--backend', simulator.url, '-m', 'sim')
  const chats = `${gateway.url}/v1/chat/completions`
  const [whole, stream] = [post(chats, chat), post(chats, { ...chat, stream: true })]
  await expect.poll(() => simulator.stats.inFlight).toBe(2)
  gateway.running.process.kill('SIGTERM')
  await gateway.running.shows('stderr', 'draining')
  expect(await (await fetch(`${gateway.url}/ready`)).json()).toEqual({
    status: 'not ready',
    why: 'the gateway is draining',
  })
  const refused = await post(chats, chat)
  expect(refused.status).toBe(503)
  expect(refused.headers.get('retry-after')).toBe('1')
  expect(await (await whole).json()).toMatchObject({ object: 'chat.completion' })
  expect(await (await stream).text()).toMatch(/data: \[DONE\]\n\n$/)
  expect(await gateway.running.ended).toMatchObject({ code: 0 })
})

test('SIGHUP drains the gateway as SIGTERM does', async () => {
  await using runs = await temporaryRuns()
  await using gateway = await startGateway(runs.root, '--backend', 'sim')
  gateway.running.process.kill('SIGHUP')
  await gateway.running.shows('stderr', 'draining')
  expect(await gateway.running.ended).toMatchObject({ code: 0 })
})

test('a second signal stops a gateway that drains after SIGHUP', async () => {
  await using runs = await temporaryRuns()
  await using simulator = await SimulatorServer.start({})
  await using gateway = await startGateway(runs.root, '--backend', simulator.url, '-m', 'sim')
  await hang(simulator)
  const reply = post(`${gateway.url}/v1/chat/completions`, chat)
  await expect.poll(() => simulator.stats.inFlight).toBe(1)
  gateway.running.process.kill('SIGHUP')
  await gateway.running.shows('stderr', 'draining')
  gateway.running.process.kill('SIGTERM')
  expect((await reply).status).toBe(503)
  expect(await gateway.running.ended).toMatchObject({ code: 129 })
})

test('a second signal stops running requests, and their clients get an error that says so', async () => {
  await using runs = await temporaryRuns()
  await using simulator = await SimulatorServer.start({})
  await using gateway = await startGateway(runs.root, '--backend', simulator.url, '-m', 'sim')
  await hang(simulator)
  const reply = post(`${gateway.url}/v1/messages`, { ...chat, max_tokens: 10 })
  await expect.poll(() => simulator.stats.inFlight).toBe(1)
  gateway.running.process.kill('SIGTERM')
  await gateway.running.shows('stderr', 'draining')
  gateway.running.process.kill('SIGTERM')
  expect(await (await reply).json()).toMatchObject({
    type: 'error',
    error: { message: expect.stringContaining('was stopped during this request') as string },
  })
  expect(await gateway.running.ended).toMatchObject({ code: 143 })
  const shown = await millrace({ cwd: runs.root }, 'show', 'gateway', '--json')
  expect(JSON.parse(shown.stdout)).toMatchObject({ state: 'unfinished', end: 'stopped' })
})

test('a gateway that fails to start leaves its run drained', async () => {
  await using runs = await temporaryRuns()
  {
    await using gateway = await startGateway(runs.root, '--backend', 'sim')
    gateway.running.process.kill('SIGTERM')
    expect(await gateway.running.ended).toMatchObject({ code: 0 })
  }
  await using simulator = await SimulatorServer.start({})
  const { port } = new URL(simulator.url)
  const refused = await millrace({ cwd: runs.root }, 'gateway', '--backend', 'sim', '--port', port)
  expect(refused).toMatchObject({ code: 2, stderr: expect.stringContaining('EADDRINUSE') })
  const shown = await millrace({ cwd: runs.root }, 'show', 'gateway', '--json')
  expect(JSON.parse(shown.stdout)).toMatchObject({ state: 'unfinished', end: 'drained' })
})

test('a port or run in use and an invalid name are reported before any backend is probed', async () => {
  await using runs = await temporaryRuns()
  await using simulator = await SimulatorServer.start({})
  await using gateway = await startGateway(runs.root, '--backend', 'sim')
  const { port } = new URL(gateway.url)
  const start = (...words: readonly string[]): ReturnType<typeof millrace> =>
    millrace({ cwd: runs.root }, 'gateway', '--backend', simulator.url, ...words)
  const [taken, inUse, misnamed] = await Promise.all([
    start('--port', port, '--run', 'other'),
    start('--port', '0'),
    start('--port', '0', '--run', '../other'),
  ])
  expect(taken).toMatchObject({ code: 2, stderr: expect.stringContaining('EADDRINUSE'), stdout: '' })
  expect(inUse).toMatchObject({ code: 1, stderr: expect.stringContaining('[run_in_use]'), stdout: '' })
  expect(misnamed).toMatchObject({ code: 2, stderr: expect.stringContaining('cannot be the name of'), stdout: '' })
})

test(
  'after a kill under load, the next process has every reply and every session that a client saw',
  { timeout: 120_000 },
  async () => {
    await using runs = await temporaryRuns()
    const seen = new Map<string, string>()
    let session: { id: string; key: string }
    {
      await using gateway = await startGateway(runs.root, '--backend', 'sim', '--log-level', 'error')
      const started = await post(`${gateway.url}/v1/sessions`, { groupId: 'g', limits: { maxRequests: 1_000_000 } })
      ;[session] = ((await started.json()) as { sessions: [{ id: string; key: string }] }).sessions
      const { url, running } = gateway
      const talk = async (client: number): Promise<void> => {
        for (let turn = 0; ; turn += 1) {
          const content = `client ${client}, turn ${turn}`
          const reply = await post(
            `${url}/v1/chat/completions`,
            { ...chat, messages: [{ role: 'user', content }] },
            session.key,
          )
          const { id } = (await reply.json()) as { id: string }
          seen.set(id, content)
        }
      }
      const clients = Array.from({ length: 16 }, (_, client) => talk(client).catch(() => {}))
      await expect.poll(() => seen.size).toBeGreaterThan(200)
      running.process.kill('SIGKILL')
      await once(running.process, 'exit')
      await Promise.all(clients)
    }
    await using gateway = await startGateway(runs.root, '--backend', 'sim', '--log-level', 'error')
    const text = await (await fetch(`${gateway.url}/v1/export?group=g`, { headers: authorized() })).text()
    const rows = text
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as { interaction?: string })
    const kept = new Set(rows.flatMap(({ interaction }) => (interaction === undefined ? [] : [interaction])))
    for (const [id, content] of seen) expect(kept, `${content} was answered`).toContain(id)
    // The session goes on, with its key.
    const view = await fetch(`${gateway.url}/v1/sessions/${session.id}`, { headers: authorized(session.key) })
    expect(await view.json()).toMatchObject({ state: 'open', interactions: kept.size })
    expect((await post(`${gateway.url}/v1/chat/completions`, chat, session.key)).status).toBe(200)
  },
)

test('each request is one line of the log', async () => {
  await using runs = await temporaryRuns()
  await using gateway = await startGateway(runs.root, '--backend', 'sim')
  const headers = { ...authorized(), 'x-request-id': 'mine' }
  const ask = { method: 'POST', headers, body: JSON.stringify({ ...chat, stream: true }) }
  await (await fetch(`${gateway.url}/v1/chat/completions`, ask)).text()
  await post(`${gateway.url}/v1/chat/completions`, { ...chat, model: 'nobody' })
  await post(`${gateway.url}/v1/chat/completions`, chat, 'wrong')
  gateway.running.process.kill('SIGTERM')
  const { stderr } = await gateway.running.ended
  const lines = stderr
    .split('\n')
    .flatMap((line) => (line.includes('"msg":"request"') ? [JSON.parse(line) as unknown] : []))
  expect(lines).toMatchObject([
    {
      level: 'info',
      requestId: 'mine',
      tenant: 'default',
      model: 'sim',
      api: 'chat',
      status: 200,
      outputTokens: expect.any(Number) as number,
      ms: expect.any(Number) as number,
      firstTokenMs: expect.any(Number) as number,
      backend: 'simulator',
      tries: 1,
    },
    { level: 'warn', status: 404, error: { code: 'model_not_found' } },
    { level: 'warn', status: 401, error: { code: 'model_auth' } },
  ])
})

test('the backends are shown at the start, and one that does not answer is a warning', async () => {
  await using runs = await temporaryRuns()
  await using simulator = await SimulatorServer.start({ models: 'a,b' })
  const nobody = 'http://127.0.0.1:9/v1'
  await using gateway = await startGateway(runs.root, '-m', 'a', '--backend', simulator.url, '--backend', nobody)
  const shown = gateway.running.stdout()
  expect(shown).toMatch(/^backend +kind +models +context +tokens$/m)
  expect(shown).toMatch(/a +\S+ +ids, logprobs/)
  expect(shown).toMatch(/127\.0\.0\.1:9\S* +unreachable/)
  expect(shown).toContain(`warning: ${nobody} is not used until it answers`)
  await gateway.running.shows('stderr', `${nobody} cannot be reached`)
  const models = await fetch(`${gateway.url}/v1/models`, { headers: authorized() })
  expect(await models.json()).toMatchObject({ data: [{ id: 'a' }] })
})

test('a gateway can be configured by a YAML file or a module', async () => {
  await using runs = await temporaryRuns()
  const yaml = `
# What an agent may ask for.
models:
  policy:
    simulator: { seed: 3 }
    maxConcurrency: \${AT_ONCE}
  remote:
    backends: [{ url: 'http://127.0.0.1:9/v1?team=\${TEAM}', headers: { x-team: '\${TEAM}' } }]
aliases: { gpt-4o: policy, '*': policy }
keys:
  - { tenant: research, key: '\${RESEARCH_KEY}' }
run: from-file
`
  await writeFile(join(runs.root, 'gateway.yaml'), yaml)
  await writeFile(join(runs.root, '.env'), 'RESEARCH_KEY=a key of the researchers\nTEAM=a-team-secret\nAT_ONCE=8\n')
  await using gateway = await startGateway(runs.root, '--config', 'gateway.yaml')
  const reply = await post(
    `${gateway.url}/v1/responses`,
    { model: 'anything', input: 'hi' },
    'a key of the researchers',
  )
  expect(await reply.json()).toMatchObject({ object: 'response', model: 'anything' })
  const file = await readFile(join(runs.root, 'runs', 'from-file', 'run.json'), 'utf8')
  expect(file).not.toContain('researchers')
  expect(file).not.toContain('a-team-secret')
  expect(gateway.running.stdout()).not.toContain('a-team-secret')
  expect(JSON.parse(file)).toMatchObject({
    config: { models: [{ name: 'policy', maxConcurrency: 8 }, { name: 'remote' }] },
  })

  await writeFile(
    join(runs.root, 'gateway.ts'),
    `export default { models: { policy: { simulator: {} } }, run: 'from-module' }\n`,
  )
  await using other = await startGateway(runs.root, '--config', 'gateway.ts')
  const models = await fetch(`${other.url}/v1/models`, { headers: authorized() })
  expect(await models.json()).toMatchObject({ data: [{ id: 'policy' }] })
})

test.each([
  [['--backend', 'sim', '--host', '0.0.0.0'], 'MILLRACE_ADMIN_KEY'],
  [['--backend', 'sim', '--admin-key-env', 'NOWHERE'], 'NOWHERE, which is not set'],
  [['--backend', 'nowhere at all'], '"nowhere at all" is not a valid backend URL'],
  [['--config', 'missing.yaml'], 'cannot read missing.yaml'],
  [['--config', 'unset.yaml'], 'unset.yaml: keys[0].key needs the variable NOT_SET'],
  [['--config', 'wrong.yaml'], 'models.policy: `maxConcurency` is not known; did you mean `maxConcurrency`?'],
  [['--config', 'broken.yaml'], 'at line 2, column 1 [config_invalid]'],
  [['--config', 'imports.ts'], 'imports.ts: it does not load: Error [ERR_MODULE_NOT_FOUND]: Cannot find module'],
  [['--config', 'wrong.yaml', '--model', 'a'], '--model names the model of a --backend'],
  [['--backend', 'sim', '--public-url', 'here'], '"here" is not a valid public URL'],
  [['--config', 'public.yaml'], '"gateway:8787" is not a valid public URL'],
  [[], 'which backend? Add --backend <url> (backends), or models to the file of --config;'],
])('millrace gateway %s reports the mistake', async (words, message) => {
  await using runs = await temporaryRuns()
  await writeFile(
    join(runs.root, 'unset.yaml'),
    `models: { a: { simulator: {} } }\nkeys: [{ tenant: a, key: '\${NOT_SET}' }]\n`,
  )
  await writeFile(join(runs.root, 'wrong.yaml'), 'models: { policy: { simulator: {}, maxConcurency: 3 } }\n')
  await writeFile(join(runs.root, 'imports.ts'), "import './missing.ts'\nexport default {}\n")
  await writeFile(join(runs.root, 'public.yaml'), 'models: { a: { simulator: {} } }\npublicUrl: gateway:8787\n')
  await writeFile(join(runs.root, 'broken.yaml'), 'models: { policy: [\n')
  const { code, stderr } = await millrace({ cwd: runs.root }, 'gateway', ...words, '--port', '0')
  expect(stderr).toContain(message)
  expect(code).toBe(2)
})
