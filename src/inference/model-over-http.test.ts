import { getEventListeners } from 'node:events'
import { expect, test } from 'vitest'
import { activeResources, leftSince } from '../kit/_testing/active-resources.ts'
import { openBackend } from './_testing/open-backend.ts'
import { ScriptedServer, chatReply, sendJson } from './_testing/scripted-server.ts'
import type { ModelRequest } from './backend.ts'
import { modelConfigSchema } from './model-config.ts'
import type { LimitChange } from './model-contract.ts'
import { Model } from './model.ts'

const ask: ModelRequest = {
  messages: [{ role: 'user', content: 'hi' }],
  tools: [],
  sampling: {},
  captureTokens: false,
  sessionId: 's',
}

test('a thousand calls aborted together: the server sees every connection go, and nothing is left', async () => {
  await using server = await ScriptedServer.start(() => {})
  await using model = new Model(modelConfigSchema.parse({ name: 'm', maxConcurrency: 200 }), [
    openBackend(server.url, { maxConcurrency: 200 }),
  ])
  const before = activeResources()
  const controller = new AbortController()
  let waiting = 0
  const hooks = { signal: controller.signal, onWaitStart: () => (waiting += 1), onWaitEnd: () => (waiting -= 1) }
  const calls = Array.from({ length: 1000 }, () => model.call(ask, hooks))
  await server.received(200)
  controller.abort(new Error('enough'))
  const replies = await Promise.all(calls)
  expect(replies.every(({ status }) => status === 'aborted')).toBe(true)
  await Promise.all(server.requests.map(({ closed }) => closed))
  expect(server.requests).toHaveLength(200)
  expect(waiting).toBe(0)
  expect(getEventListeners(controller.signal, 'abort')).toHaveLength(0)
  expect(model.status()).toMatchObject({ inFlight: 0, waiting: 0, parked: 0 })
  expect(await leftSince(before)).toEqual([])
})

test('a server that is down for a while costs time, not calls', async () => {
  let isDown = true
  await using server = await ScriptedServer.start((response) => {
    if (isDown) sendJson(response, { error: { message: 'loading' } }, 503)
    else sendJson(response, chatReply('up'))
  })
  const changes: LimitChange[] = []
  const onLimitChange = (change: LimitChange): void => {
    changes.push(change)
    // It comes back once everybody is parked; the next probe finds it.
    if (change.kind === 'parked') isDown = false
  }
  await using model = new Model(
    modelConfigSchema.parse({ name: 'm', maxConcurrency: 50 }),
    [openBackend(server.url, { maxConcurrency: 50 })],
    { onLimitChange, random: () => 0 },
  )
  const { signal } = new AbortController()
  const replies = await Promise.all(Array.from({ length: 300 }, () => model.call(ask, { signal })))
  expect(replies.filter(({ status }) => status !== 'complete')).toEqual([])
  expect(changes.map(({ kind }) => kind)).toEqual(['parked', 'released'])
  expect(server.requests.length).toBeLessThanOrEqual(360)
})
