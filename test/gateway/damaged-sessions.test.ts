import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { DatabaseSync } from 'node:sqlite'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'
import { admin, OpenGateway } from '../support/gateway/open-gateway.ts'
import { gatewayEvents, type GatewayEvent } from '../../src/gateway/index.ts'
import { ScriptedBackend } from '../../src/testing/index.ts'
import { blobOutOfReach } from '../support/store/damage.ts'
import { temporaryFolder } from '../support/store/fixtures.ts'

const asked = (content: string): object => ({ model: 'm', messages: [{ role: 'user', content }] })

/** Nothing is remembered, so that what was said is read whenever it is needed. */
function open(folder?: string): Promise<OpenGateway> {
  return OpenGateway.open({
    models: [{ name: 'm', backends: [{ url: 'http://scripted.invalid' }] }],
    backends: { m: [new ScriptedBackend(() => 'hello')] },
    bounds: { maxRemembered: 0 },
    ...(folder !== undefined && { folder }),
  })
}

function changeRun(folder: string, sql: string): void {
  using database = new DatabaseSync(join(folder, 'journal.sqlite'), { timeout: 10_000 })
  database.exec(sql)
}

test('a session with a damaged message can be ended, and the damage is named', async () => {
  await using gateway = await open()
  const { id, caller } = await gateway.session()
  await gateway.ask(caller, asked('first'))
  await gateway.ask(caller, asked('second'))
  await gateway.store.journal.durable()
  changeRun(gateway.store.folder, `UPDATE node SET message = '{' WHERE rollout = '${id}' AND seq = 2`)
  const events: GatewayEvent[] = []
  using _listening = gatewayEvents.subscribe((event) => events.push(event))
  expect(gateway.gateway.sessions(admin, { limit: 1 }).sessions).toMatchObject([{ id }])
  const refused = await gateway.ask(caller, asked('third'))
  expect(refused).toMatchObject({ status: 410, headers: { 'x-should-retry': 'false' } })
  expect(JSON.stringify(refused)).toContain(`the record of session ${id} is damaged`)

  const damaged = {
    interactions: 1,
    alarms: ['record_damaged', 'tokens_missing'],
    damage: expect.stringContaining('message 2 of'),
  }
  expect(await gateway.gateway.session(admin, id)).toMatchObject({ ...damaged, state: 'open' })
  const listed = { id, damage: damaged.damage }
  expect(gateway.gateway.sessions(admin, { limit: 1 }).sessions).toMatchObject([listed])
  // Whoever asks meanwhile, or later, is told the same.
  const both = await Promise.all([gateway.gateway.endSession(admin, id), gateway.gateway.endSession(admin, id)])
  for (const view of [...both, await gateway.gateway.endSession(admin, id), await gateway.gateway.session(admin, id)]) {
    expect(view).toMatchObject({ ...damaged, state: 'ended' })
  }
  expect(events.filter(({ kind }) => kind !== 'interaction-end')).toMatchObject([
    { kind: 'session-unreadable', session: id, error: { code: 'store_failed' } },
    { kind: 'session-end', session: id, interactions: 1, alarms: ['record_damaged', 'tokens_missing'] },
  ])
  expect((await gateway.ask(caller, asked('third'))).status).toBe(410)
  expect(gateway.gateway.status()).toMatchObject({ openSessions: 0, idleSessions: 0 })
  expect(gateway.gateway.sessions(admin, { limit: 1 }).sessions).toMatchObject([listed])
})

test('a list shows known damage until it is repaired', async () => {
  await using gateway = await open()
  const { id, caller } = await gateway.session()
  await gateway.ask(caller, asked('first'))
  const [message] = await gateway.nodes(id)
  changeRun(gateway.store.folder, `UPDATE node SET message = '{' WHERE rollout = '${id}' AND seq = 0`)
  const damage = expect.stringContaining('message 0 of')
  expect(await gateway.gateway.session(admin, id)).toMatchObject({ damage })
  expect(gateway.gateway.sessions(admin, { limit: 1 }).sessions).toMatchObject([{ id, damage }])
  const json = JSON.stringify(message?.message)
  changeRun(gateway.store.folder, `UPDATE node SET message = '${json}' WHERE rollout = '${id}' AND seq = 0`)
  expect(await gateway.gateway.session(admin, id)).not.toHaveProperty('damage')
  expect(gateway.gateway.sessions(admin, { limit: 1 }).sessions[0]).not.toHaveProperty('damage')
})

test('a session with a damaged message is read once for each request', async () => {
  await using gateway = await open()
  const { id, caller } = await gateway.session()
  await gateway.ask(caller, asked('first'))
  await gateway.store.journal.durable()
  changeRun(gateway.store.folder, `UPDATE node SET message = '{' WHERE rollout = '${id}' AND seq = 1`)
  const { sessions } = gateway.store.reader
  const read = sessions.bareNodesOf.bind(sessions)
  let reads = 0
  sessions.bareNodesOf = (session) => {
    reads += 1
    return read(session)
  }
  for (const times of [1, 2]) {
    expect(await gateway.gateway.session(admin, id)).toMatchObject({ state: 'open', alarms: ['record_damaged'] })
    expect(reads).toBe(times)
  }
  expect(gateway.gateway.status()).toMatchObject({ openSessions: 1, idleSessions: 0 })
})

test('a session with a damaged message can expire', async () => {
  await using gateway = await open()
  const { id, caller } = await gateway.session({ ttlSeconds: 1 })
  await gateway.ask(caller, asked('first'))
  await gateway.store.journal.durable()
  changeRun(gateway.store.folder, `UPDATE node SET message = '{' WHERE rollout = '${id}'`)
  await expect.poll(() => gateway.store.reader.sessions.session(id)?.end?.why).toBe('expired')
})

test('a session that is temporarily unreadable stays open, and can be ended later', async () => {
  await using gateway = await open()
  const { id, caller } = await gateway.session()
  await gateway.ask(caller, asked('hello'))
  const [message] = await gateway.nodes(id)
  changeRun(gateway.store.folder, `UPDATE node SET message = 'blob:0000' WHERE rollout = '${id}' AND seq = 0`)
  {
    using _blob = blobOutOfReach(gateway.store.folder)
    // Whoever asks meanwhile waits for the same end.
    const both = await Promise.allSettled([
      gateway.gateway.endSession(admin, id),
      gateway.gateway.endSession(admin, id),
    ])
    expect(both.map(({ status }) => status)).toEqual(['rejected', 'rejected'])
  }
  const json = JSON.stringify(message?.message)
  changeRun(gateway.store.folder, `UPDATE node SET message = '${json}' WHERE rollout = '${id}' AND seq = 0`)
  expect(await gateway.gateway.session(admin, id)).toMatchObject({ state: 'open', interactions: 1 })
  expect((await gateway.ask(caller, asked('hello'))).status).toBe(200)
  expect(await gateway.gateway.endSession(admin, id)).toMatchObject({ state: 'ended', interactions: 2 })
  expect((await gateway.ask(caller, asked('hello'))).status).toBe(410)
  expect(gateway.gateway.status()).toMatchObject({ openSessions: 0, idleSessions: 0 })
  expect(gateway.store.reader.integrity()).toEqual([])
})

test('a session with an unreadable start does not affect other sessions, and can be ended', async () => {
  using folder = temporaryFolder()
  let good, bad
  {
    await using first = await open(folder.path)
    bad = await first.session()
    good = await first.session()
    await first.ask(bad.caller, asked('hello'))
  }
  changeRun(join(folder.path, 'run'), `UPDATE session SET data = '{"ttlSeconds":' WHERE id = '${bad.id}'`)
  const events: GatewayEvent[] = []
  using _listening = gatewayEvents.subscribe((event) => events.push(event))
  await using second = await open(folder.path)
  expect(events).toMatchObject([{ kind: 'session-unreadable', session: bad.id, error: { code: 'store_failed' } }])
  expect(second.gateway.status().openSessions).toBe(1)
  expect((await second.ask(good.caller, asked('hello'))).status).toBe(200)
  // Lists name it, and go on after it.
  expect(second.gateway.sessions(admin, { limit: 2 })).toMatchObject({
    sessions: [{ id: good.id }],
    unreadable: [bad.id],
    after: good.id,
  })
  expect(second.gateway.sessions(admin, { limit: 1 })).toEqual({ sessions: [], unreadable: [bad.id], after: bad.id })
  expect(second.gateway.sessions(admin, { limit: 2, after: bad.id })).toMatchObject({
    sessions: [{ id: good.id }],
    after: null,
  })
  expect((await second.ask(bad.caller, asked('hello'))).status).toBe(410)

  const damaged = {
    interactions: 1,
    alarms: ['record_damaged', 'tokens_missing'],
    damage: expect.stringContaining('the start record of session'),
  }
  expect(await second.gateway.session(admin, bad.id)).toMatchObject({ ...damaged, state: 'open' })
  // Whoever asks meanwhile, or later, is told the same.
  const both = await Promise.all([second.gateway.endSession(admin, bad.id), second.gateway.endSession(admin, bad.id)])
  for (const view of [...both, await second.gateway.endSession(admin, bad.id)]) {
    expect(view).toMatchObject({ ...damaged, state: 'ended' })
  }
  expect(events.filter(({ kind }) => kind === 'session-end')).toMatchObject([{ session: bad.id, why: 'ended' }])
  expect(events.filter(({ kind }) => kind === 'session-unreadable')).toHaveLength(1)
  expect((await second.ask(bad.caller, asked('hello'))).status).toBe(410)
})

test('at most a thousand damaged sessions are reported one by one; lists name all of them', async () => {
  using folder = temporaryFolder()
  {
    await using first = await open(folder.path)
    await first.gateway.startSessions(admin, { groupSize: 1_010 })
  }
  changeRun(join(folder.path, 'run'), "UPDATE session SET data = '{'")
  const told = new Set<string>()
  using _listening = gatewayEvents.subscribe((event) => event.kind === 'session-unreadable' && told.add(event.session))
  await using second = await open(folder.path)
  expect(second.gateway.sessions(admin, { limit: 2_000 }).unreadable).toHaveLength(1_010)
  expect(told.size).toBe(1_000)
})

test('a gateway without free descriptors to read a session does not start', async () => {
  using folder = temporaryFolder()
  {
    await using first = await open(folder.path)
    // So much is in a file of its own.
    await first.session({ metadata: { notes: 'x'.repeat(65_500) } })
  }
  const script = fileURLToPath(new URL('../support/gateway/starved-start.ts', import.meta.url))
  const command = ['-c', 'ulimit -n 64 && exec "$@"', 'sh', process.execPath, script, folder.path]
  const { stdout } = await promisify(execFile)('sh', command)
  expect(JSON.parse(stdout)).toEqual(['EMFILE', 'overloaded', expect.stringContaining('ulimit -n'), 1])
})
