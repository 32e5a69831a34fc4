import { once } from 'node:events'
import { mkdirSync, readdirSync, rmSync } from 'node:fs'
import { createServer, type AddressInfo } from 'node:net'
import { join } from 'node:path'
import { temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import { findModels, GatewayServer, type GatewayServerOptions } from '../../src/serve/index.ts'

const key = 'an-admin-key-for-tests'

async function open(root: string, options: Partial<GatewayServerOptions> = {}): Promise<GatewayServer> {
  const models = { sim: { simulator: {} }, blind: { simulator: { imitate: 'openai' as const } } }
  const found = await findModels({ backends: [], models, env: {}, signal: new AbortController().signal })
  const run = { root, name: 'gateway' }
  return await GatewayServer.open({ ...found, keys: [{ tenant: 'default', key }], port: 0, run, env: {}, ...options })
}

interface Answer {
  readonly error: { readonly message: string }
  readonly sessions: readonly { readonly id: string; readonly key: string }[]
  readonly tokens: string | null
  readonly state: string
}

async function send(url: string, body?: object, token: string | null = key): Promise<Answer> {
  const headers = token === null ? {} : { authorization: `Bearer ${token}` }
  const reply = await fetch(url, body ? { method: 'POST', headers, body: JSON.stringify(body) } : { headers })
  return (await reply.json()) as Answer
}

const chat = (model: string) => ({ model, messages: [{ role: 'user', content: 'What is 6 * 7?' }] })

test('a session reports whether its replies have tokens, also after a restart', async () => {
  await using runs = await temporaryRuns()
  let sessions: Answer['sessions']
  const tokensOf = async (url: string) =>
    await Promise.all(sessions.map(async ({ id }) => (await send(`${url}/v1/sessions/${id}`)).tokens))
  {
    await using server = await open(runs.root)
    ;({ sessions } = await send(`${server.url}/v1/sessions`, { groupSize: 4 }))
    const asked = [[], ['sim'], ['blind'], ['sim', 'blind', 'sim']]
    for (const [index, models] of asked.entries()) {
      for (const model of models) await send(`${server.url}/v1/chat/completions`, chat(model), sessions[index]?.key)
    }
    expect(await tokensOf(server.url)).toEqual([null, 'all', 'none', 'some'])
  }
  await using server = await open(runs.root)
  expect(await tokensOf(server.url)).toEqual([null, 'all', 'none', 'some'])
})

test('a refused request says how to get access', async () => {
  await using runs = await temporaryRuns()
  await using server = await open(runs.root)
  const { url } = server
  const told = async (...request: Parameters<typeof send>) => (await send(...request)).error.message
  for (const path of ['/v1/sessions', '/v1/models']) {
    expect(await told(url + path, undefined, null)).toContain('send a key of this gateway')
    expect(await told(url + path, undefined, 'another')).toContain('does not know the key of the request')
  }
  expect(await told(`${url}/chat/completions`, {})).toContain('did you mean POST /v1/chat/completions?')
  expect(await told(`${url}/v1/v1/messages`, {})).toContain('did you mean POST /v1/messages?')
  expect(await told(`${url}/sessions/s/responses`, {})).toContain('did you mean POST /sessions/s/v1/responses?')
  expect(await told(`${url}/v1//chat/completions`, {})).toContain('did you mean POST /v1/chat/completions?')
  expect(await told(`${url}//responses/`, {})).toContain('did you mean POST /v1/responses?')
  expect(await told(`${url}/v1/sessions/s/reward`, {})).toContain('did you mean POST /v1/sessions/s/rewards?')
  expect(await told(`${url}/v1/session`, {})).toContain('did you mean POST /v1/sessions?')
  expect(await told(`${url}/v1/nowhere?a=1`, {})).toBe(
    'there is no POST /v1/nowhere; GET /openapi.json lists the routes',
  )
  expect(await told(`${url}/v1/export`, {})).toBe('there is no POST /v1/export; it takes GET')
  const headers = { authorization: `Bearer ${key}` }
  const deleted = (await (await fetch(`${url}/v1/sessions`, { method: 'DELETE', headers })).json()) as Answer
  expect(deleted.error.message).toBe('there is no DELETE /v1/sessions; it takes GET and POST')
  expect(await told(`${url}/v1/export?sesion=1`)).toContain('`sesion` is not known; did you mean `session`?')
  expect(await told(`${url}/v1/sessions`, { taskID: 'a' })).toContain('`taskID` is not known; did you mean `taskId`?')
  expect(await told(`${url}/v1/sessions`, { limits: { maxToken: 1 } })).toContain(
    'limits: `maxToken` is not known; did you mean `maxTokens`?',
  )
  expect(await told(`${url}/v1/sessions/any/rewards`, { rewards: 1 })).toContain('did you mean `reward`?')
})

test('a failed start leaves nothing behind, unless the run existed before', async () => {
  await using runs = await temporaryRuns()
  await using other = createServer().listen(0, '127.0.0.1')
  await once(other, 'listening')
  const { port } = other.address() as AddressInfo
  await expect(open(runs.root, { port })).rejects.toMatchObject({
    message: expect.stringContaining(String(port)) as string,
  })
  await expect(open(runs.root, { aliases: { gpt: 'nobody' } })).rejects.toThrow('nobody')
  expect(readdirSync(runs.root)).toEqual([])
  await using _server = await open(runs.root)
  await _server.close()
  await expect(open(runs.root, { port })).rejects.toThrow(String(port))
  expect(readdirSync(runs.root)).toEqual(['gateway'])
})

test('the error for an expired session names the expiry', async () => {
  await using runs = await temporaryRuns()
  await using server = await open(runs.root)
  const { sessions } = await send(`${server.url}/v1/sessions`, { ttlSeconds: 0.05 })
  const ask = async () => await send(`${server.url}/v1/chat/completions`, chat('sim'), sessions[0]?.key)
  await expect.poll(async () => (await send(`${server.url}/v1/sessions/${sessions[0]?.id}`)).state).toBe('expired')
  expect((await ask()).error.message).toMatch(/expired, because it was not used for its ttlSeconds/)
})

test('a notice reports a generated key that a configured key replaces', async () => {
  await using runs = await temporaryRuns()
  const start = async (keys: GatewayServerOptions['keys']) => {
    await using server = await open(runs.root, { keys })
    return { madeKey: server.madeKey, notices: server.notices }
  }
  const { madeKey = '', notices } = await start([])
  expect(notices).toEqual([])
  const acme = { tenant: 'acme', key: 'the-key-of-acme' }
  const [notice] = (await start([acme])).notices
  expect(notice).toContain(`MILLRACE_ADMIN_KEY=$(cat ${runs.root}/gateway/admin.key)`)
  expect(notice).not.toContain(madeKey)
  expect((await start([acme, { tenant: 'default', key: madeKey }])).notices).toEqual([])
  const [replaced] = (await start([{ tenant: 'default', key: 'another-key' }])).notices
  expect(replaced).toContain(
    `the key in ${runs.root}/gateway/admin.key is not valid, because tenant default has another key`,
  )
  expect(replaced).not.toContain('another-key')
  // As another user's cannot be read; keys that are given are the way out of that.
  const file = join(runs.root, 'gateway', 'admin.key')
  rmSync(file)
  mkdirSync(file)
  expect((await start([{ tenant: 'default', key: 'another-key' }])).notices).toEqual([])
})
