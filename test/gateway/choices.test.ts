import { setImmediate } from 'node:timers/promises'
import { describe, expect, test } from 'vitest'
import { admin, OpenGateway } from '../support/gateway/open-gateway.ts'
import type { RecordingClient } from '../support/gateway/recording-client.ts'
import { beginEvents, doneEvent, tokenChunk, usageChunk } from '../support/gateway/token-chunks.ts'
import { chatReply, ScriptedServer, sendJson, type Handler } from '../support/inference/scripted-server.ts'
import { SimulatorServer } from '../../src/simulator/index.ts'
import { temporaryFolder } from '../support/store/fixtures.ts'

const hello = { model: 'm', messages: [{ role: 'user', content: 'hello' }] }
const streamed = { ...hello, stream: true, stream_options: { include_usage: true } }

/** Answers with the number of the request as its text, its id and its only token; `before` may answer in its place. */
function numbering(before?: (number: number, ...rest: Parameters<Handler>) => unknown): Handler {
  let count = 0
  return async (response, request) => {
    count += 1
    const number = count
    if (await before?.(number, response, request)) return
    const id = `chatcmpl-${number}`
    const { stream } = JSON.parse(request.body) as { stream?: boolean }
    if (stream) {
      beginEvents(response)
      response.write(tokenChunk(`Hello ${number}`, { id, token: number, promptIds: [7] }))
      response.end(tokenChunk('', { id, finish: 'stop' }) + usageChunk(1, 1, id) + doneEvent)
      return
    }
    const message = { role: 'assistant', content: `Hello ${number}` }
    const logprobs = { content: [{ token: 'x', logprob: -1 }] }
    const choices = [{ index: 0, message, finish_reason: 'stop', token_ids: [number], logprobs }]
    const usage = {
      prompt_tokens: 1,
      completion_tokens: 1,
      total_tokens: 2,
      prompt_tokens_details: { cached_tokens: 1 },
    }
    sendJson(response, chatReply('', { id, prompt_token_ids: [7], choices, usage }))
  }
}

function over({ url }: { url: string }, folder?: string): Promise<OpenGateway> {
  const models = [{ name: 'm', maxTries: 1, backends: [{ url }] }]
  return OpenGateway.open({ models, ...(folder !== undefined && { folder }) })
}

interface Chunk {
  readonly id?: string
  readonly choices: readonly {
    readonly index: number
    readonly interaction_id?: string
    readonly delta: { readonly content?: string }
    readonly finish_reason: string | null
  }[]
  readonly usage?: Record<string, unknown> | null
}

const chunksOf = ({ events }: RecordingClient): Chunk[] =>
  events.filter((event): event is Chunk => typeof event === 'object')

/** The text of each choice of a stream. */
function textsOf(client: RecordingClient): string[] {
  const texts: string[] = []
  for (const { choices } of chunksOf(client)) {
    for (const { index, delta } of choices) texts[index] = (texts[index] ?? '') + (delta.content ?? '')
  }
  return texts
}

/** Requests for choices may come to the server in any order. */
function inOrder<Value>(values: readonly Value[]): Value[] {
  return values.toSorted((one, other) => (JSON.stringify(one) < JSON.stringify(other) ? -1 : 1))
}

/** The names and texts of the choices of a whole reply. */
function saidIn(document: Record<string, unknown>): unknown[] {
  const choices = document['choices'] as { interaction_id: string; message: { content: string } }[]
  return inOrder(choices.map(({ interaction_id: name, message }) => [name, message.content]))
}

const sampled = async (open: OpenGateway, id: string): Promise<unknown[]> =>
  (await open.nodes(id))
    .filter((node) => node.sampled)
    .map(({ parent, message, tokens, call, discarded }) => [
      parent,
      message.content,
      tokens && [...tokens.ids],
      call?.replyId ?? discarded?.why,
    ])

const three = ['Hello 1', 'Hello 2', 'Hello 3']
const oneAndThree = [1, 3].map((number) => [`chatcmpl-${number}`, `Hello ${number}`])
const threeRecorded = [1, 2, 3].map((number) => [0, `Hello ${number}`, [number], `chatcmpl-${number}`])

describe('a request for several choices', () => {
  test('gets one whole reply; each choice is sampled and recorded with its tokens', async () => {
    await using server = await ScriptedServer.start(numbering())
    await using open = await over(server)
    const { id, caller } = await open.session()
    const { status, document } = await open.ask(caller, { ...hello, n: 3 })
    expect(status).toBe(200)
    expect(document).toMatchObject({
      object: 'chat.completion',
      choices: [0, 1, 2].map((index) => ({ index, finish_reason: 'stop' })),
      usage: { prompt_tokens: 3, completion_tokens: 3, total_tokens: 6, prompt_tokens_details: { cached_tokens: 3 } },
    })
    expect(saidIn(document)).toEqual([1, 2, 3].map((number) => [`chatcmpl-${number}`, `Hello ${number}`]))
    // The client asked for no tokens.
    expect(JSON.stringify(document)).not.toContain('token_ids')
    for (const { body } of server.requests) expect(JSON.parse(body)).not.toHaveProperty('n')
    expect((await open.nodes(id)).filter((node) => !node.sampled)).toHaveLength(1)
    expect(inOrder(await sampled(open, id))).toEqual(threeRecorded)
    // Each takes a reward of its own, and a conversation may continue any of them.
    await open.gateway.reward(admin, id, { reward: 1, interactionId: 'chatcmpl-2' })
    const more = [...hello.messages, { role: 'assistant', content: 'Hello 2' }, { role: 'user', content: 'go on' }]
    await open.ask(caller, { ...hello, messages: more })
    const nodes = await open.nodes(id)
    const second = nodes.find(({ message }) => message.content === 'Hello 2')
    expect(nodes.find(({ message }) => message.content === 'go on')?.parent).toBe(second?.seq)
    expect(await open.gateway.session(admin, id)).toMatchObject({ interactions: 4, used: { requests: 4 } })
  })

  test('gets one stream with one id, one usage and one end', async () => {
    await using server = await ScriptedServer.start(numbering())
    await using open = await over(server)
    const { id, caller } = await open.session()
    const client = await open.ask(caller, { ...streamed, n: 3 })
    expect(inOrder(textsOf(client))).toEqual(three)
    const chunks = chunksOf(client)
    expect(new Set(chunks.map((chunk) => chunk.id)).size).toBe(1)
    expect(chunks.flatMap(({ usage }) => usage ?? [])).toEqual([
      { prompt_tokens: 3, completion_tokens: 3, total_tokens: 6 },
    ])
    const ends = chunks.flatMap(({ choices }) => choices).filter((choice) => choice.finish_reason === 'stop')
    expect(inOrder(ends.map(({ index }) => index))).toEqual([0, 1, 2])
    expect(client.events.filter((event) => event === '[DONE]')).toHaveLength(1)
    expect(client.events.at(-1)).toBe('[DONE]')
    expect(inOrder(await sampled(open, id))).toEqual(threeRecorded)
    const ids = chunks.flatMap(({ choices }) => choices.map((choice) => choice.interaction_id))
    expect(inOrder([...new Set(ids)])).toEqual(['chatcmpl-1', 'chatcmpl-2', 'chatcmpl-3'])
  })

  test('sends seed + i with choice i, because equal seeds would give equal replies', async () => {
    await using server = await ScriptedServer.start(numbering())
    await using open = await over(server)
    const { id, caller } = await open.session()
    await open.ask(caller, { ...hello, n: 3, seed: 40 })
    const seeds = server.requests.map(({ body }) => (JSON.parse(body) as { seed: number }).seed)
    expect(inOrder(seeds)).toEqual([40, 41, 42])
    const recorded = (await open.nodes(id)).flatMap(({ call }) => call?.sampling?.seed ?? [])
    expect(inOrder(recorded)).toEqual([40, 41, 42])
    for (const seed of [2 ** 53 - 1, -(2 ** 53)]) {
      const { status, document } = await open.ask(caller, { ...hello, n: 2, seed })
      const message = expect.stringContaining('choice i is sent seed + i') as unknown
      expect([status, document]).toMatchObject([400, { error: { param: 'seed', message } }])
    }
  })

  test.each([0, 129, -1, 1.5, '2'])('is refused with param n if n is %j', async (n) => {
    await using server = await ScriptedServer.start(numbering())
    await using open = await over(server)
    const { caller } = await open.session()
    for (const who of [caller, admin]) {
      const { status, document } = await open.ask(who, { ...hello, n })
      expect([status, document]).toMatchObject([400, { error: { param: 'n' } }])
    }
    expect(server.requests).toHaveLength(0)
  })

  test('is recognised in any spelling of `n`, and only if the body has `n`', async () => {
    await using server = await ScriptedServer.start(numbering())
    await using open = await over(server)
    const { caller } = await open.session()
    const asked = JSON.stringify(hello).slice(0, -1)
    for (const [written, count] of [
      ['"n" :\n 2', 2],
      [String.raw`"\u006e":2`, 2],
      [`"n":${' '.repeat(40)}2`, 2],
      ['"n":1', 1],
      ['"n":null', 1],
      ['"metadata":{"n":2}', 1],
      ['"user":"n"', 1],
    ] as const) {
      const { document } = await open.ask(caller, `${asked},${written}}`)
      expect([written, document['choices']]).toEqual([written, expect.objectContaining({ length: count })])
    }
  })

  test('is refused before sampling if the limits of the session do not allow all choices', async () => {
    await using server = await ScriptedServer.start(numbering())
    await using open = await over(server)
    for (const limits of [{ maxRequests: 2 }, { maxConcurrent: 2 }]) {
      const { caller } = await open.session({ limits })
      expect((await open.ask(caller, { ...hello, n: 3 })).status).toBe(429)
      expect(server.requests).toHaveLength(0)
    }
  })

  test('pauses its backends while the client does not read', async () => {
    await using server = await ScriptedServer.start(numbering())
    await using open = await over(server)
    const { caller } = await open.session()
    const { client, done } = open.send(caller, { ...streamed, n: 3 })
    client.isFull = true
    await client.received(1)
    client.resume()
    await done
    expect(inOrder(textsOf(client))).toEqual(three)
  })
})

describe('if one of several choices fails', () => {
  test('the client gets only the error; a complete choice stays undelivered until a retry', async () => {
    const second = Promise.withResolvers<void>()
    await using server = await ScriptedServer.start(
      numbering(async (number, response) => {
        if (number !== 2) return false
        await second.promise
        sendJson(response, { error: { message: 'broken' } }, 500)
        return true
      }),
    )
    await using open = await over(server)
    const { id, caller } = await open.session()
    const { client, done } = open.send(caller, { ...hello, n: 2 })
    await expect.poll(async () => (await sampled(open, id)).length).toBe(1)
    expect(client.isEnded).toBe(false)
    second.resolve()
    await done
    expect([client.status, client.document]).toMatchObject([500, { error: {} }])
    expect(await sampled(open, id)).toEqual([[0, 'Hello 1', [1], 'client_gone']])
    const again = await open.ask(caller, { ...hello, n: 2 }, { retryCount: 1 })
    expect(saidIn(again.document)).toEqual(oneAndThree)
    expect(server.requests).toHaveLength(3)
    expect(await sampled(open, id)).toEqual([
      [0, 'Hello 1', [1], 'chatcmpl-1'],
      [0, 'Hello 3', [3], 'chatcmpl-3'],
    ])
  })

  test('during a stream, the stream ends with the error', async () => {
    const first = Promise.withResolvers<void>()
    await using server = await ScriptedServer.start(
      numbering(async (number, response) => {
        if (number !== 2) return false
        await first.promise
        sendJson(response, { error: { message: 'broken' } }, 500)
        return true
      }),
    )
    await using open = await over(server)
    const { id, caller } = await open.session()
    const { client, done } = open.send(caller, { ...streamed, n: 2 })
    await client.received(1)
    await expect.poll(async () => (await sampled(open, id)).length).toBe(1)
    first.resolve()
    await done
    expect(client.events.at(-1)).toMatchObject({ error: {} })
    expect(client.events).not.toContain('[DONE]')
    expect(await sampled(open, id)).toEqual([[0, 'Hello 1', [1], 'client_gone']])
  })
})

describe('a client of several choices that disconnects', () => {
  test('aborts the incomplete choices, and a retry gets the complete ones', async () => {
    const second = Promise.withResolvers<void>()
    await using server = await ScriptedServer.start(
      numbering(async (number) => {
        if (number === 2) await second.promise
        return false
      }),
    )
    await using open = await over(server)
    const { id, caller } = await open.session()
    const { client, done } = open.send(caller, { ...hello, n: 2 })
    await expect.poll(async () => (await sampled(open, id)).length).toBe(1)
    client.leave()
    await done
    second.resolve()
    expect((await sampled(open, id))[0]).toEqual([0, 'Hello 1', [1], 'client_gone'])
    const again = await open.ask(caller, { ...hello, n: 2 }, { retryCount: 1 })
    expect(saidIn(again.document)).toEqual(oneAndThree)
  })

  test('and retries while they are sampled, gets the same choices', async () => {
    const go = Promise.withResolvers<void>()
    await using server = await ScriptedServer.start(
      numbering(async () => {
        await go.promise
        return false
      }),
    )
    await using open = await over(server)
    const { id, caller } = await open.session()
    const first = open.send(caller, { ...streamed, n: 2 })
    await server.received(2)
    const again = open.send(caller, { ...streamed, n: 2 }, { retryCount: 1 })
    await setImmediate()
    first.client.leave()
    go.resolve()
    await Promise.all([first.done, again.done])
    expect(inOrder(textsOf(again.client))).toEqual(['Hello 1', 'Hello 2'])
    expect(server.requests).toHaveLength(2)
    expect(inOrder(await sampled(open, id))).toEqual(threeRecorded.slice(0, 2))
  })

  test('gets all 128 choices again after a restart, without new sampling', async () => {
    await using server = await ScriptedServer.start(numbering())
    using folder = temporaryFolder()
    const asked = { ...hello, n: 128 }
    let before: unknown
    let caller
    {
      await using open = await over(server, folder.path)
      const session = await open.session()
      caller = session.caller
      before = (await open.ask(caller, asked)).document['choices']
    }
    await using open = await over(server, folder.path)
    const again = (await open.ask(caller, asked, { retryCount: 1 })).document['choices']
    const said = (choices: unknown): unknown[] =>
      (choices as { index: number; interaction_id: string; message: { content: string } }[]).map(
        ({ index, interaction_id: name, message }) => [index, name, message.content],
      )
    expect(said(again)).toEqual(said(before))
    expect(server.requests).toHaveLength(128)
  })
})

describe('several choices', () => {
  test('work with a backend of another API, in a session and outside', async () => {
    await using simulator = await SimulatorServer.start({ imitate: 'anthropic' })
    const models = [{ name: 'm', api: 'messages' as const, backends: [{ url: simulator.url }] }]
    await using open = await OpenGateway.open({ models })
    const { id, caller } = await open.session()
    for (const who of [caller, admin]) {
      const { status, document } = await open.ask(who, { ...hello, n: 2 })
      expect([status, document]).toMatchObject([200, { choices: [{ index: 0 }, { index: 1 }] }])
      const client = await open.ask(who, { ...streamed, n: 2 })
      expect(textsOf(client).filter((text) => text !== '')).toHaveLength(2)
    }
    expect(await open.gateway.session(admin, id)).toMatchObject({ interactions: 4 })
  })

  test('work with the built-in simulator outside of a session', async () => {
    await using open = await OpenGateway.open({ models: [{ name: 'm', simulator: {} }] })
    const { document } = await open.ask(admin, { ...hello, n: 2 })
    expect(document).toMatchObject({ choices: [{ index: 0 }, { index: 1 }] })
  })

  test('are requested as n from a Chat backend outside of a session', async () => {
    await using server = await ScriptedServer.start((response, { body }) => {
      const { n } = JSON.parse(body) as { n: number }
      const choice = (index: number): object => ({ index, message: { content: 'x' }, finish_reason: 'stop' })
      sendJson(response, chatReply('', { choices: Array.from({ length: n }, (_, index) => choice(index)) }))
    })
    await using open = await over(server)
    const { document } = await open.ask(admin, { ...hello, n: 2 })
    expect(server.requests).toHaveLength(1)
    expect(document).toMatchObject({ choices: [{ index: 0 }, { index: 1 }], usage: { prompt_tokens: 7 } })
  })

  test.each([
    ['cut before all have ended, is broken', [0], '', false],
    ['in which all have ended, is complete', [0, 1], '', true],
    ['with one and an end, because some servers send no more, is complete', [0], doneEvent, true],
  ] as const)('are passed on outside of a session, as a stream %s', async (_title, ended, end, isComplete) => {
    await using server = await ScriptedServer.start((response) => {
      beginEvents(response)
      for (const index of ended) {
        const chunk = tokenChunk('x', { finish: 'stop' }).replace('"index":0', `"index":${index}`)
        response.write(chunk)
      }
      response.end(end)
    })
    await using open = await over(server)
    const client = await open.ask(admin, { ...hello, stream: true, n: 2 })
    expect(client.events.includes('[DONE]')).toBe(isComplete)
  })
})
