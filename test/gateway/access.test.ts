import { mkdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import { adminKey, apis, asked, TestGateway } from '../support/gateway/test-gateway.ts'

test.each(apis)('%s refuses a client without a valid key with an error of its API', async (api) => {
  await using gateway = await TestGateway.start()
  const { path, body } = asked[api]
  for (const key of [null, 'wrong', '', `${adminKey}x`, 'mrs-unknown']) {
    const reply = await gateway.ask(path, { body, key })
    expect(reply.status).toBe(401)
    expect(reply.body['error']).toMatchObject({ type: 'authentication_error' })
  }
  expect((await gateway.ask(path, { body, key: null, headers: { 'x-api-key': adminKey } })).status).toBe(200)
  expect((await gateway.ask(path, { body, key: null, headers: { authorization: `bearer ${adminKey}` } })).status).toBe(
    200,
  )
  // Clients of Anthropic send two where they find two.
  expect((await gateway.ask(path, { body, key: 'wrong', headers: { 'x-api-key': adminKey } })).status).toBe(200)
  expect((await gateway.ask(path, { body, headers: { 'x-api-key': 'wrong' } })).status).toBe(200)
  expect((await gateway.ask(path, { body, key: 'wrong', headers: { 'x-api-key': 'wrong' } })).status).toBe(401)
})

test('a session key is valid for that session only', async () => {
  await using gateway = await TestGateway.start()
  const [mine, other] = await gateway.startSessions({ groupSize: 2 })
  const { key = '' } = mine ?? {}
  const { path, body } = asked.chat
  expect((await gateway.ask(path, { body, key })).status).toBe(200)
  expect((await gateway.ask(`/sessions/${mine?.id}${path}`, { body, key })).status).toBe(200)
  expect((await gateway.ask(`/v1/sessions/${mine?.id}`, { key })).body).toMatchObject({ id: mine?.id, interactions: 2 })
  expect((await gateway.ask('/v1/models', { key })).status).toBe(200)

  expect((await gateway.ask(`/sessions/${other?.id}${path}`, { body, key })).status).toBe(404)
  expect((await gateway.ask(`/v1/sessions/${other?.id}`, { key })).status).toBe(404)
  expect((await gateway.ask(`/v1/sessions/${other?.id}/end`, { method: 'POST', key })).status).toBe(404)
  for (const admins of ['/v1/sessions', '/v1/export', '/metrics']) {
    expect((await gateway.ask(admins, { key })).status, admins).toBe(403)
  }
  expect((await gateway.ask('/v1/sessions', { body: {}, key })).status).toBe(403)
})

test('the metadata of a session is not shown to its own key', async () => {
  await using gateway = await TestGateway.start()
  const [session] = await gateway.startSessions({ metadata: { answer: 42 }, selfManaged: true })
  const { id, key } = session ?? {}
  const path = `/v1/sessions/${id}`
  expect((await gateway.ask(path)).body).toMatchObject({ metadata: { answer: 42 } })
  const seen = [
    await gateway.ask(path, { key: key ?? '' }),
    await gateway.ask(`${path}/rewards`, { key: key ?? '', body: { reward: 1 } }),
    await gateway.ask(`${path}/end`, { key: key ?? '', method: 'POST' }),
    await gateway.ask(path, { key: key ?? '' }),
  ]
  for (const { status, body, text } of seen) {
    expect(status, text).toBe(200)
    expect(body).toMatchObject({ id })
    expect(body).not.toHaveProperty('metadata')
  }
})

test('a session key cannot set rewards or end the session, unless the session is self-managed', async () => {
  await using gateway = await TestGateway.start()
  const { id, key } = await gateway.startSession()
  await gateway.ask(asked.chat.path, { body: asked.chat.body, key })
  for (const path of ['rewards', 'end']) {
    const refused = await gateway.ask(`/v1/sessions/${id}/${path}`, { body: { reward: 9 }, key })
    expect(refused.status).toBe(403)
    expect(refused.text).toContain('selfManaged')
  }
  await gateway.ask(`/v1/sessions/${id}/rewards`, { body: { reward: 0 } })
  expect((await gateway.ask(`/v1/sessions/${id}/end`, { method: 'POST' })).status).toBe(200)
  expect((await gateway.ask(`/v1/sessions/${id}/rewards`, { body: { reward: 9 }, key })).status).toBe(403)
  expect((await gateway.ask(`/v1/sessions/${id}`, { key })).body).toMatchObject({ reward: 0, selfManaged: false })

  const own = await gateway.startSession({ selfManaged: true })
  expect((await gateway.ask(`/v1/sessions/${own.id}/end`, { method: 'POST', key: own.key })).status).toBe(200)
  const rewarded = await gateway.ask(`/v1/sessions/${own.id}/rewards`, { body: { reward: 1 }, key: own.key })
  expect(rewarded.body).toMatchObject({ reward: 1, selfManaged: true, rewarded: { node: null, reward: 1 } })
})

test('the answer to a reward names the reply and the value', async () => {
  await using gateway = await TestGateway.start()
  const { id, key } = await gateway.startSession()
  const { body } = await gateway.ask(asked.chat.path, { body: asked.chat.body, key })
  const reward = { reward: 0.5, interactionId: body['id'] }
  expect((await gateway.ask(`/v1/sessions/${id}/rewards`, { body: reward })).body).toMatchObject({
    id,
    reward: null,
    rewarded: { node: 1, reward: 0.5 },
  })
})

test('with several tenants, only the default tenant sees the metrics', async () => {
  const [red, own] = ['the key of the reds', 'the key of the house']
  await using gateway = await TestGateway.start({
    keys: [
      { tenant: 'red', key: red },
      { tenant: 'default', key: own },
    ],
  })
  expect((await gateway.ask('/metrics', { key: own })).status).toBe(200)
  expect(await gateway.ask('/metrics', { key: red })).toMatchObject({
    status: 403,
    body: { error: { message: expect.stringContaining('an admin key of tenant default') as string } },
  })
  // One alone sees its own figures.
  await using alone = await TestGateway.start({ keys: [{ tenant: 'red', key: red }] })
  expect((await alone.ask('/metrics', { key: red })).status).toBe(200)
})

test('a tenant cannot see the sessions of another tenant', async () => {
  const keys = [
    { tenant: 'red', key: 'the key of the reds' },
    { tenant: 'blue', key: 'the key of the blues' },
  ]
  await using gateway = await TestGateway.start({ keys })
  const [red, blue] = keys.map(({ key }) => key)
  const { body } = await gateway.ask('/v1/sessions', { body: { groupId: 'shared' }, key: red ?? null })
  const [session] = body['sessions'] as { id: string }[]
  expect((await gateway.ask(`/v1/sessions/${session?.id}`, { key: red ?? null })).body).toMatchObject({ tenant: 'red' })
  expect((await gateway.ask(`/v1/sessions/${session?.id}`, { key: blue ?? null })).status).toBe(404)
  expect((await gateway.ask('/v1/sessions', { key: blue ?? null })).body).toMatchObject({ sessions: [] })
  const exported = await gateway.ask('/v1/export?group=shared', { key: blue ?? null })
  expect(exported.text).not.toContain(session?.id)
})

test.each(['from a file\n', ' ', 'schlüssel', 'two\nlines'])('the unusable key %j is refused', async (key) => {
  await expect(TestGateway.start({ keys: [{ tenant: 'a', key }] })).rejects.toMatchObject({
    code: 'config_invalid',
    message: expect.stringContaining('the key of tenant a begins or ends with white space') as string,
  })
})

test('an unreadable or invalid key file is refused with the way to fix it', async () => {
  await using folder = await temporaryRuns()
  const options = { keys: [], run: { root: folder.root, name: 'gateway' } }
  await (await TestGateway.start(options))[Symbol.asyncDispose]()
  const file = join(folder.root, 'gateway', 'admin.key')
  await writeFile(file, 'not\na key\n')
  await expect(TestGateway.start(options)).rejects.toMatchObject({ code: 'config_invalid' })
  await rm(file)
  await mkdir(file)
  await expect(TestGateway.start(options)).rejects.toMatchObject({
    code: 'folder_unwritable',
    message: expect.stringContaining('set MILLRACE_ADMIN_KEY') as string,
  })
})

test.each(['0.0.0.0', '::', '192.168.1.4'])('listening on %s requires a long admin key', async (host) => {
  await using folder = await temporaryRuns()
  const root = join(folder.root, 'runs')
  const run = { root, name: 'gateway' }
  await expect(TestGateway.start({ host, keys: [], run })).rejects.toMatchObject({
    code: 'config_invalid',
    message: expect.stringContaining('MILLRACE_ADMIN_KEY') as string,
  })
  await expect(TestGateway.start({ host, keys: [{ tenant: 'a', key: 'fifteen letters' }], run })).rejects.toMatchObject(
    {
      code: 'config_invalid',
      message: expect.stringContaining('16 characters') as string,
    },
  )
  // Nothing was made for it.
  await expect(stat(root)).rejects.toMatchObject({ code: 'ENOENT' })
})

test('on the local host a key is generated, stored for its owner only, and reused at the next start', async () => {
  await using first = await TestGateway.start({ keys: [] })
  const { madeKey = '' } = first.server
  expect(madeKey).toMatch(/^mra-[\w-]{43}$/)
  expect((await first.ask('/v1/models')).status).toBe(401)
  expect((await first.ask('/v1/models', { key: madeKey })).status).toBe(200)
  const path = join(first.root, 'gateway', 'admin.key')
  expect((await stat(path)).mode & 0o777).toBe(0o600)
  expect((await readFile(path, 'utf8')).trim()).toBe(madeKey)
  await first.server.close()
  await using second = await TestGateway.start({ keys: [], run: { root: first.root, name: 'gateway' } })
  expect(second.server.madeKey).toBe(madeKey)
})

test('the run file contains no key', async () => {
  const key = 'sk-upstream-secret'
  await using gateway = await TestGateway.start({
    models: [{ name: 'm', backends: [{ url: 'http://127.0.0.1:9/v1', headers: { 'x-team': key } }] }],
    env: { OPENAI_API_KEY: key },
  })
  const file = await readFile(join(gateway.root, 'gateway', 'run.json'), 'utf8')
  expect(JSON.parse(file)).toMatchObject({ config: { kind: 'gateway', models: [{ name: 'm' }] } })
  expect(file).not.toContain(key)
  expect(file).not.toContain(adminKey)
})
