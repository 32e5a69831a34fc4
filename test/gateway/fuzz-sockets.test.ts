import { once } from 'node:events'
import type { ServerResponse } from 'node:http'
import { connect } from 'node:net'
import { Agent, request } from 'undici'
import { expect, test } from 'vitest'
import { activeResources, leftSince } from '../support/kit/active-resources.ts'
import { ScriptedServer } from '../support/inference/scripted-server.ts'
import type { ApiName } from '../../src/schema/index.ts'
import type { Feed } from '../support/gateway/fuzz/byte-backend.ts'
import { Chance, fuzz, OwnFaults } from '../support/gateway/fuzz/fuzz.ts'
import { fuzzedBody, plainBody } from '../support/gateway/fuzz/request-bodies.ts'
import { fuzzedFeed, mayHaveEnded, validFeed } from '../support/gateway/fuzz/backend-replies.ts'
import { mutatedBytes, pieces } from '../support/gateway/fuzz/mutations.ts'
import { checkError, checkStream, readObject } from '../support/gateway/stream-events.ts'
import { adminKey, TestGateway } from '../support/gateway/test-gateway.ts'
import { apiClients, apiNames } from '../support/gateway/api-clients.ts'

const replyCases = 1_500
const requestCases = 1_500
const rawCases = 500

/** A server for all three APIs, which answers a request as its trace's case says, or well. */
async function startServer(feeds: Map<string, Feed>): Promise<ScriptedServer> {
  return await ScriptedServer.start((response, { path, headers, body }) => {
    const api = apiNames.find((each) => apiClients[each].path === path) ?? 'chat'
    const { traceparent } = headers
    const named = typeof traceparent === 'string' ? feeds.get(traceparent) : undefined
    send(response, named ?? validFeed(api, body.includes('"stream":true'), new Chance(body.length)))
  })
}

function send(response: ServerResponse, { status, headers, pieces: sent, end }: Feed): void {
  response.writeHead(status, headers)
  for (const piece of sent) response.write(piece)
  if (end === 'end') response.end()
  else if (end === 'error') response.write('', () => response.destroy())
}

async function startGateway(server: ScriptedServer): Promise<TestGateway> {
  return await TestGateway.start({
    models: apiNames.map((api) => ({
      name: api,
      upstreamName: 'upstream',
      api,
      maxTries: 1,
      idleTimeoutMs: 500,
      requestTimeoutMs: 1000,
      backends: [{ url: server.url }],
    })),
  })
}

test('every request over a socket gets a reply or an error of its API', { timeout: 120_000 }, async () => {
  const before = activeResources()
  {
    const feeds = new Map<string, Feed>()
    await using server = await startServer(feeds)
    await using gateway = await startGateway(server)
    await using clients = new FuzzedClients(gateway)
    const keys = [adminKey, ...(await gateway.startSessions({ groupSize: 10 })).map(({ key }) => key)]
    using faults = new OwnFaults()
    await fuzz('socket-replies', { count: replyCases, atOnce: 12 }, async (chance) => {
      const [api, upstream] = [chance.pick(apiNames), chance.pick(apiNames)]
      const { stream, ...rest } = plainBody(api, chance)
      const feed = fuzzedFeed(upstream, stream, chance)
      const traceparent = `replies-${chance.seed}`
      feeds.set(traceparent, feed)
      const body = Buffer.from(JSON.stringify({ ...rest, stream, model: upstream }))
      const outcome = await clients.ask(
        { api, isPassed: api === upstream, key: chance.pick(keys), body, traceparent },
        chance,
      )
      feeds.delete(traceparent)
      faults.throwIfAny()
      if (outcome === 'complete' && !mayHaveEnded(upstream, feed)) throw new Error('a reply without an end has got one')
    })
    await fuzz('socket-requests', { count: requestCases, atOnce: 12 }, async (chance) => {
      const api = chance.pick(apiNames)
      const body = fuzzedBody(api, apiNames, chance)
      const traceparent = `requests-${chance.seed}`
      await clients.ask({ api, isPassed: true, key: chance.pick(keys), body, traceparent }, chance)
      faults.throwIfAny()
    })
    await expect.poll(() => gateway.server.gateway.status().running).toBe(0)
    expect(clients.outcomes).toEqual(new Set(['complete', 'error', 'left']))
    await expect
      .poll(() => gateway.ask('/metrics').then(({ text }) => text))
      .toMatch(/^millrace_gateway_body_bytes 0$/m)
  }
  expect(await leftSince(before)).toEqual([])
})

type Outcome = 'complete' | 'error' | 'left'

interface AskedOverSocket {
  readonly api: ApiName
  readonly isPassed: boolean
  readonly key: string
  readonly body: Buffer
  readonly traceparent: string
}

/** Clients that send bytes as they are and hold a gateway to the rules of its replies. */
class FuzzedClients implements AsyncDisposable {
  readonly outcomes = new Set<Outcome>()
  readonly #gateway: TestGateway
  readonly #agent = new Agent()

  constructor(gateway: TestGateway) {
    this.#gateway = gateway
  }

  async ask(asked: AskedOverSocket, chance: Chance): Promise<Outcome> {
    const outcome = await this.#outcome(asked, chance)
    this.outcomes.add(outcome)
    return outcome
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#agent.destroy()
  }

  async #outcome({ api, isPassed, key, body: sent, traceparent }: AskedOverSocket, chance: Chance): Promise<Outcome> {
    const { statusCode, headers, body } = await request(this.#gateway.url + apiClients[api].path, {
      dispatcher: this.#agent,
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json', traceparent },
      body: sent,
    })
    if (chance.is(0.03)) {
      body.on('error', () => {})
      body.destroy()
      return 'left'
    }
    const text = await body.text()
    if (String(headers['content-type']).startsWith('text/event-stream')) {
      const end = checkStream(api, text, isPassed)
      if (end === 'cut') throw new Error(`the stream has an end, but its reply has none: ${text}`)
      return end
    }
    if (statusCode === 200) {
      readObject(text)
      return 'complete'
    }
    checkError(api, statusCode, text)
    return 'error'
  }
}

test('bytes that are not HTTP requests do no harm', { timeout: 60_000 }, async () => {
  const before = activeResources()
  {
    await using server = await startServer(new Map())
    await using gateway = await startGateway(server)
    const { hostname, port } = new URL(gateway.url)
    let answered = 0
    const cases = await fuzz('raw-sockets', { count: rawCases, atOnce: 16 }, async (chance) => {
      const api = chance.pick(apiNames)
      const body = JSON.stringify({ ...plainBody(api, chance), model: api })
      const head = [
        `POST ${apiClients[api].path} HTTP/1.1`,
        `host: ${hostname}:${port}`,
        `authorization: Bearer ${adminKey}`,
        'content-type: application/json',
        chance.is(0.3) ? 'transfer-encoding: chunked' : `content-length: ${Buffer.byteLength(body)}`,
        'connection: close',
      ]
      let bytes: Buffer = Buffer.from(`${head.join('\r\n')}\r\n\r\n${body}`)
      for (let count = chance.below(4); count > 0; count -= 1) bytes = mutatedBytes(bytes, chance)
      const answer = await answerTo(pieces(bytes, chance), hostname, Number(port))
      // Some are requests all the same; what is answered is answered in HTTP.
      if (answer === '') return
      expect(answer).toMatch(/^HTTP\/1\.1 [2345]\d\d /)
      answered += 1
    })
    expect(answered).toBeGreaterThan(cases / 4)
    expect((await gateway.ask('/health')).status).toBe(200)
    await expect.poll(() => gateway.server.gateway.status().running).toBe(0)
  }
  expect(await leftSince(before)).toEqual([])
})

/** Everything that comes back until the connection is closed; the client has nothing more to say after its bytes. */
async function answerTo(sent: readonly Buffer[], host: string, port: number): Promise<string> {
  const socket = connect({ host, port, allowHalfOpen: false })
  socket.on('error', () => {})
  let answer = ''
  socket.setEncoding('latin1').on('data', (text: string) => (answer += text))
  for (const piece of sent) socket.write(piece)
  socket.end()
  await once(socket, 'close').catch(() => {})
  return answer
}
