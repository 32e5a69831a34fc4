import { text } from 'node:stream/consumers'
import { Readable } from 'node:stream'
import { setImmediate } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { exportRows } from '../../src/rows/index.ts'
import { admin, OpenGateway } from '../support/gateway/open-gateway.ts'
import { beginEvents, doneEvent, tokenChunk, usageChunk } from '../support/gateway/token-chunks.ts'
import { temporaryFolder } from '../support/store/fixtures.ts'
import { ScriptedServer, type Handler } from '../support/inference/scripted-server.ts'

type Sent = ReturnType<OpenGateway['send']>

const hello = { model: 'm', stream: true, messages: [{ role: 'user', content: 'hello' }] }
/** What is asked of whoever answered that with "Hello 1". */
const goOn = {
  ...hello,
  messages: [...hello.messages, { role: 'assistant', content: 'Hello 1' }, { role: 'user', content: 'go on' }],
}

/** Each reply has one token more in its prompt for each message, and one token: its number. It says that, too, or always the same. */
function numbering(says = (count: number): string => `Hello ${count}`): Handler {
  let count = 0
  return (response, { body }) => {
    count += 1
    const { messages } = JSON.parse(body) as { messages: readonly { role: string; content: string }[] }
    const promptIds = messages.map(({ role, content }) => (role === 'user' ? 1000 : Number(content.split(' ')[1])))
    const more = { id: `chatcmpl-${count}`, token: count, promptIds }
    beginEvents(response)
    response.write(tokenChunk(says(count), more))
    response.end(tokenChunk('', { id: more.id, finish: 'stop' }) + usageChunk(promptIds.length, 1, more.id) + doneEvent)
  }
}

async function over(server: ScriptedServer, folder?: string): Promise<OpenGateway> {
  const models = [{ name: 'm', maxTries: 1, backends: [{ url: server.url }] }]
  return OpenGateway.open({ models, ...(folder !== undefined && { folder }) })
}

/** A request whose client goes away when the reply is complete and only its way to the disk is waited for. */
async function leftAtTheEnd(
  { store: { journal } }: OpenGateway,
  send: () => Sent,
  meanwhile?: () => void,
): Promise<void> {
  const durable = journal.durable.bind(journal)
  const { client, done } = send()
  journal.durable = () => {
    journal.durable = durable
    const pending = durable()
    client.leave()
    meanwhile?.()
    return pending
  }
  await done
  expect(client.isEnded).toBe(false)
}

interface Row {
  readonly kind: string
  readonly interaction?: string
  readonly discarded?: string | null
  readonly reward?: number | null
  readonly ids?: readonly number[] | null
}

async function rowsOf({ store }: OpenGateway, rows: 'interactions' | 'merged' = 'interactions'): Promise<Row[]> {
  await store.journal.durable()
  const lines = await text(
    Readable.from(exportRows(store.reader, { rows, format: 'jsonl', include: 'discarded' }), { objectMode: false }),
  )
  const all = lines.trimEnd().split('\n')
  return all.slice(0, -1).map((line) => JSON.parse(line) as Row)
}

const shortly = ({ kind, interaction, discarded, reward }: Row): unknown[] => [kind, interaction, discarded, reward]

test('an undelivered reply is a lost sample until a retry gets it', async () => {
  await using server = await ScriptedServer.start(numbering())
  await using open = await over(server)
  const { id, caller } = await open.session()
  await leftAtTheEnd(open, () => open.send(caller, hello))
  await open.gateway.reward(admin, id, { reward: 1 })
  expect(await open.gateway.session(admin, id)).toMatchObject({
    interactions: 0,
    discarded: 1,
    tokens: null,
    used: { requests: 1, tokens: 1 },
  })
  expect((await rowsOf(open)).map(shortly)).toEqual([
    ['empty', undefined, undefined, 1],
    ['interaction', 'chatcmpl-1', 'client_gone', null],
  ])
  // It has its tokens, and they are not trained on.
  expect(await rowsOf(open, 'merged')).toMatchObject([
    { kind: 'empty', lost: 1 },
    { ids: [1000, 1], mask: [0, 0], discarded: 'client_gone' },
  ])
  for (const reply of [{ interactionId: 'chatcmpl-1' }, { node: 1 }]) {
    await expect(open.gateway.reward(admin, id, { reward: 1, ...reply })).rejects.toMatchObject({
      data: { status: 404 },
      message: expect.stringContaining('was discarded (client_gone)') as string,
    })
  }
  // One that has gone as well has not got it either.
  const gone = open.send(caller, hello, { retryCount: 1 })
  gone.client.leave()
  await gone.done
  expect(await open.gateway.session(admin, id)).toMatchObject({ interactions: 0, discarded: 1 })
  const again = await open.ask(caller, hello, { retryCount: 2 })
  expect(again.text).toContain('Hello 1')
  expect(server.requests).toHaveLength(1)
  expect(await open.gateway.endSession(admin, id)).toMatchObject({
    interactions: 1,
    discarded: 0,
    tokens: 'all',
    used: { requests: 1, tokens: 1 },
    alarms: [],
  })
  expect((await rowsOf(open)).map(shortly)).toEqual([['interaction', 'chatcmpl-1', null, 1]])
  expect(open.store.reader.integrity()).toEqual([])
})

test('of two retries of an undelivered reply, one that disconnects does not take it from the other', async () => {
  await using server = await ScriptedServer.start(numbering())
  await using open = await over(server)
  const { id, caller } = await open.session()
  await leftAtTheEnd(open, () => open.send(caller, hello))
  const gone = open.send(caller, hello, { retryCount: 1 })
  gone.client.leave()
  const [received] = await Promise.all([open.ask(caller, hello, { retryCount: 2 }), gone.done])
  expect(received.text).toContain('Hello 1')
  expect((await rowsOf(open)).map(shortly)).toEqual([['interaction', 'chatcmpl-1', null, null]])
  expect(await open.gateway.session(admin, id)).toMatchObject({ interactions: 1, discarded: 0 })
})

test('a request that continues an undelivered reply by its id makes it delivered, also with new instructions', async () => {
  await using server = await ScriptedServer.start(numbering())
  await using open = await over(server)
  const { id, caller } = await open.session()
  const asked = { model: 'm', stream: true, input: 'hello', instructions: 'Prompt 7' }
  let first: Sent | undefined
  await leftAtTheEnd(open, () => (first = open.send(caller, asked, { api: 'responses' })))
  expect(await open.gateway.session(admin, id)).toMatchObject({ interactions: 0, discarded: 1 })
  const [begun] = (first?.client.events ?? []) as { readonly response: { readonly id: string } }[]
  const next = { ...asked, input: 'go on', instructions: 'Prompt 8', previous_response_id: begun?.response.id }
  expect((await open.ask(caller, next, { api: 'responses' })).text).toContain('Hello 2')
  expect(await open.gateway.session(admin, id)).toMatchObject({ interactions: 2, discarded: 0 })
})

test('a session that ends while a retry receives an undelivered reply counts it as delivered', async () => {
  await using server = await ScriptedServer.start(numbering())
  await using open = await over(server)
  const { id, caller } = await open.session()
  await leftAtTheEnd(open, () => open.send(caller, hello))
  const retry = open.send(caller, hello, { retryCount: 1 })
  await setImmediate()
  const ended = await open.gateway.endSession(admin, id)
  await retry.done
  expect(retry.client.text).toContain('Hello 1')
  expect(ended).toMatchObject({ interactions: 1, discarded: 0, alarms: [] })
  expect(ended).toEqual(await open.gateway.session(admin, id))
  expect(open.gateway.status().alarms).toBe(0)
})

test('a session with only an undelivered reply ends with the alarm nothing_captured', async () => {
  await using server = await ScriptedServer.start(numbering())
  await using open = await over(server)
  const { id, caller } = await open.session()
  await leftAtTheEnd(open, () => open.send(caller, hello))
  const ended = await open.gateway.endSession(admin, id)
  expect(ended).toMatchObject({ interactions: 0, discarded: 1, alarms: ['nothing_captured'] })
  expect(await open.gateway.session(admin, id)).toEqual(ended)
})

test('the next process knows that a reply is undelivered', async () => {
  using folder = temporaryFolder()
  await using server = await ScriptedServer.start(numbering())
  const { id, caller } = await (async () => {
    await using open = await over(server, folder.path)
    const session = await open.session()
    await leftAtTheEnd(open, () => open.send(session.caller, hello))
    return session
  })()
  await using open = await over(server, folder.path)
  expect(await open.gateway.session(admin, id)).toMatchObject({ interactions: 0, discarded: 1 })
  expect((await open.ask(caller, hello, { retryCount: 1 })).text).toContain('Hello 1')
  expect(server.requests).toHaveLength(1)
  expect(await open.gateway.session(admin, id)).toMatchObject({ interactions: 1, discarded: 0 })
})

test.each(['the same process', 'the next one'])('a continued reply counts as delivered (%s)', async (which) => {
  using folder = temporaryFolder()
  await using server = await ScriptedServer.start(numbering())
  const first = await over(server, folder.path)
  const { id, caller } = await first.session()
  await leftAtTheEnd(first, () => first.send(caller, hello))
  if (which === 'the next one') await first[Symbol.asyncDispose]()
  const open = which === 'the next one' ? await over(server, folder.path) : first
  await using _closing = open
  await open.ask(caller, goOn)
  expect((await rowsOf(open)).map(shortly)).toEqual([
    ['interaction', 'chatcmpl-1', null, null],
    ['interaction', 'chatcmpl-2', null, null],
  ])
  expect(await rowsOf(open, 'merged')).toMatchObject([{ ids: [1000, 1, 1000, 2], mask: [0, 1, 0, 1] }])
  expect(await open.gateway.session(admin, id)).toMatchObject({ interactions: 2, discarded: 0 })
})

test('a request that continues a reply before it is on disk makes it delivered', async () => {
  await using server = await ScriptedServer.start(numbering())
  await using open = await over(server)
  const { id, caller } = await open.session()
  const second = Promise.withResolvers<unknown>()
  await leftAtTheEnd(
    open,
    () => open.send(caller, hello),
    () => second.resolve(open.ask(caller, goOn)),
  )
  await second.promise
  expect((await rowsOf(open)).map(shortly)).toEqual([
    ['interaction', 'chatcmpl-1', null, null],
    ['interaction', 'chatcmpl-2', null, null],
  ])
  expect(await open.gateway.session(admin, id)).toMatchObject({ interactions: 2, discarded: 0 })
})

test.each(['the same process', 'the next one'])(
  'of two equal replies, a request continues the delivered one (%s)',
  async (which) => {
    using folder = temporaryFolder()
    await using server = await ScriptedServer.start(numbering(() => 'Hello 1'))
    const first = await over(server, folder.path)
    const { id, caller } = await first.session()
    await first.ask(caller, hello)
    await leftAtTheEnd(first, () => first.send(caller, hello))
    if (which === 'the next one') await first[Symbol.asyncDispose]()
    const open = which === 'the next one' ? await over(server, folder.path) : first
    await using _closing = open
    await open.ask(caller, goOn)
    expect(await rowsOf(open)).toMatchObject([
      { interaction: 'chatcmpl-1', discarded: null },
      { interaction: 'chatcmpl-3', discarded: null, parentInteraction: 'chatcmpl-1' },
      { interaction: 'chatcmpl-2', discarded: 'client_gone' },
    ])
    expect(await open.gateway.session(admin, id)).toMatchObject({ interactions: 2, discarded: 1 })
  },
)

test('an undelivered reply that is sampled again is a lost sample beside the delivered one', async () => {
  await using server = await ScriptedServer.start(numbering())
  await using open = await over(server)
  const { id, caller } = await open.session()
  const messages: object[] = [...hello.messages]
  for (let turn = 0; turn < 6; turn += 1) {
    const body = { ...hello, messages }
    if (turn % 2 === 1) await leftAtTheEnd(open, () => open.send(caller, body))
    const { text: received } = await open.ask(caller, body)
    const content = /Hello \d+/.exec(received)?.[0] ?? ''
    messages.push({ role: 'assistant', content }, { role: 'user', content: 'go on' })
  }
  await open.gateway.reward(admin, id, { reward: 1 })
  const [merged, ...lost] = await rowsOf(open, 'merged')
  expect(merged).toMatchObject({
    ids: [1000, 1, 1000, 3, 1000, 4, 1000, 6, 1000, 7, 1000, 9],
    mask: [0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1],
    reward: 1,
  })
  expect(lost.map(({ ids }) => ids?.at(-1))).toEqual([2, 5, 8])
  expect(open.store.reader.integrity()).toEqual([])
})
