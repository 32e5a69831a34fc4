import { expect, test } from 'vitest'
import { temporaryFolder } from '../support/store/fixtures.ts'
import { admin, OpenGateway } from '../support/gateway/open-gateway.ts'
import { seededRandom } from '../../src/kit/index.ts'
import type { Message } from '../../src/schema/index.ts'
import { ScriptedBackend } from '../../src/testing/index.ts'

function open(folder: string | undefined, bounds: object = {}): Promise<OpenGateway> {
  const backends = { m: [new ScriptedBackend(({ messages }) => `answer ${messages.length}`)] }
  const models = [{ name: 'm', backends: [{ url: 'http://scripted.invalid' }], price: { input: 0, output: 1_000_000 } }]
  return OpenGateway.open({ models, backends, bounds, ...(folder !== undefined && { folder }) })
}

test('the next process restores sessions, keys, usage, rewards and conversations', async () => {
  using folder = temporaryFolder()
  const said: Message[] = [{ role: 'user', content: 'one' }]
  let session: Awaited<ReturnType<OpenGateway['session']>>
  let ended: typeof session
  let before
  let replyId = ''
  {
    await using first = await open(folder.path)
    session = await first.session({ ttlSeconds: 100, limits: { maxRequests: 2 }, metadata: { a: 1 } })
    ended = await first.session()
    await first.gateway.endSession(admin, ended.id)
    const reply = await first.ask(session.caller, { model: 'm', messages: said })
    replyId = reply.document['id'] as string
    await first.gateway.reward(admin, session.id, { reward: 0.25 })
    before = await first.gateway.session(admin, session.id)
  }
  await using second = await open(folder.path)
  const { gateway } = second
  expect(gateway.callerFor(session.key)).toEqual(session.caller)
  expect(gateway.callerFor(ended.key)).toEqual(ended.caller)
  expect(await gateway.session(admin, session.id)).toEqual(before)
  expect((await second.ask(ended.caller, { model: 'm', messages: said })).status).toBe(410)
  expect(await gateway.reward(admin, session.id, { reward: 1, interactionId: replyId })).toBe(1)
  said.push({ role: 'assistant', content: 'answer 1' }, { role: 'user', content: 'two' })
  expect((await second.ask(session.caller, { model: 'm', messages: said })).status).toBe(200)
  expect((await second.ask(session.caller, { model: 'm', messages: said })).status).toBe(429)
  expect((await second.nodes(session.id)).map(({ parent }) => parent)).toEqual([null, 0, 1, 2])
  expect(second.store.reader.integrity()).toEqual([])
})

test.each([1, 2, 3])(
  'sessions that are read from disk for every request grow like sessions in memory, seed %i',
  async (seed) => {
    const random = seededRandom(seed)
    const pick = (count: number): number => Math.floor(random() * count)
    await using forgetful = await open(undefined, { maxRemembered: 0 })
    await using mindful = await open(undefined)
    const both = await Promise.all([forgetful, mindful].map(async (each) => ({ each, session: await each.session() })))
    const conversations: Message[][] = [[]]
    for (let step = 0; step < 25; step += 1) {
      const from = conversations[pick(conversations.length)] ?? []
      const said: Message[] = [...from, { role: 'user', content: String(pick(3)) }]
      await Promise.all(both.map(({ each, session }) => each.ask(session.caller, { model: 'm', messages: said })))
      conversations.push([...said, { role: 'assistant', content: `answer ${said.length}` }])
    }
    const [one, other] = await Promise.all(
      both.map(async ({ each, session }) =>
        (await each.nodes(session.id)).map(({ parent, sampled, hash }) => ({ parent, sampled, hash })),
      ),
    )
    expect(one).toEqual(other)
    expect(forgetful.gateway.status().idleSessions).toBe(0)
    expect(mindful.gateway.status().idleSessions).toBe(1)
  },
)

test('concurrent requests for an unloaded session share one read', async () => {
  await using forgetful = await open(undefined, { maxRemembered: 0 })
  const { id, caller } = await forgetful.session()
  const messages = [{ role: 'user', content: 'hello' }]
  const replies = await Promise.all(Array.from({ length: 8 }, () => forgetful.ask(caller, { model: 'm', messages })))
  expect(replies.map(({ status }) => status)).toEqual(Array.from({ length: 8 }, () => 200))
  const nodes = await forgetful.nodes(id)
  expect(nodes.map(({ seq }) => seq)).toEqual(nodes.map((_, index) => index))
  expect(nodes.map(({ parent }) => parent)).toEqual([null, 0, 0, 0, 0, 0, 0, 0, 0])
})
