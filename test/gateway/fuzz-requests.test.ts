import { expect, test } from 'vitest'
import { chatServer, messagesServer, responsesServer, type DialectRequest } from '../../src/apis/index.ts'
import { MillraceError } from '../../src/errors/index.ts'
import { admin, OpenGateway } from '../support/gateway/open-gateway.ts'
import type { BackendRequest } from '../../src/apis/backend.ts'
import { activeResources, leftSince } from '../support/kit/active-resources.ts'
import { messageSchema, samplingSchema, type Json, type JsonObject } from '../../src/schema/index.ts'
import { ByteBackend, type Feed } from '../support/gateway/fuzz/byte-backend.ts'
import { Chance, fuzz, heapBytes, isOneCase, OwnFaults, whySkipped } from '../support/gateway/fuzz/fuzz.ts'
import { fuzzedBody, validBody } from '../support/gateway/fuzz/request-bodies.ts'
import { FuzzedClient } from '../support/gateway/fuzz/checking-client.ts'
import { validFeed } from '../support/gateway/fuzz/backend-replies.ts'
import { mutatedJson } from '../support/gateway/fuzz/mutations.ts'
import { checkError, readObject } from '../support/gateway/stream-events.ts'
import { apiNames } from '../support/gateway/api-clients.ts'

const dialects = { chat: chatServer, responses: responsesServer, messages: messagesServer }

const readCases = 72_000
const gatewayCases = 6_000
/** Of one kind of request more than this, after a first round of it, is a leak. */
const maxGrowthBytes = 24 * 1024 * 1024

test('any JSON request is parsed or refused with an error', { timeout: 120_000 }, async ({ skip }) => {
  let read = 0
  let refused = 0
  await fuzz('read', { count: readCases }, (chance) => {
    const api = chance.pick(apiNames)
    const body = mutatedJson(validBody(api, chance), chance)
    if (!isObject(body)) return
    const request = readOrRefusal(api, body)
    if (request) read += 1
    else refused += 1
    // A schema takes ten times as long as the reading.
    if (request && chance.is(0.1)) expectValid(request)
  })
  skip(isOneCase, whySkipped)
  // Most mutations leave an object, and both ways were taken, so that neither is untested.
  expect((read + refused) / readCases).toBeGreaterThan(0.8)
  expect(refused / readCases).toBeGreaterThan(0.2)
  expect(read / readCases).toBeGreaterThan(0.1)
})

function readOrRefusal(api: keyof typeof dialects, body: JsonObject): DialectRequest | undefined {
  try {
    return dialects[api].read(body)
  } catch (error) {
    if (!(error instanceof MillraceError)) throw error
    expect(error).toMatchObject({ code: 'model_rejected', data: { status: 400 } })
    const refusal = dialects[api].error(error)
    checkError(api, refusal.status, JSON.stringify(refusal.body))
    return undefined
  }
}

/** As it is when it is written again: JSON does not support what is not finite, though it has numbers that read as such. */
function expectValid({ messages, sampling }: DialectRequest): void {
  const written = JSON.parse(JSON.stringify({ messages, sampling })) as Pick<DialectRequest, 'messages' | 'sampling'>
  for (const message of written.messages) messageSchema.parse(message)
  samplingSchema.parse(written.sampling)
}

test('a gateway answers any request and leaks nothing', { timeout: 120_000 }, async ({ skip }) => {
  const before = activeResources()
  {
    const asked = new Map<string, Buffer>()
    await using open = await answeringGateway(asked)
    using faults = new OwnFaults()
    const sessions = await Promise.all(Array.from({ length: 20 }, () => open.session()))
    const outcomes = { complete: 0, error: 0, left: 0 }
    const ask = async (chance: Chance): Promise<void> => {
      const api = chance.pick(apiNames)
      const client = new FuzzedClient(chance)
      const body = fuzzedBody(api, [...apiNames, 'sim', 'any'], chance)
      const caller = chance.is(0.5) ? chance.pick(sessions).caller : admin
      const traceparent = `case-${chance.seed}`
      asked.set(traceparent, body)
      const retryCount = chance.is(0.1) ? 1 : 0
      const counts = chance.is(0.1) && { countsOnly: true as const }
      await open.gateway.interact({ caller, api, body, traceparent, retryCount, ...counts }, client)
      asked.delete(traceparent)
      outcomes[client.outcome(api, true)] += 1
      faults.throwIfAny()
    }
    // The first round fills what is filled once.
    await fuzz('requests', { count: gatewayCases / 3, atOnce: 8 }, ask)
    const heapBefore = heapBytes()
    await fuzz('requests', { count: gatewayCases, atOnce: 8 }, ask)
    await open.store.journal.durable()
    if (!isOneCase) {
      expect(heapBytes() - heapBefore).toBeLessThan(maxGrowthBytes)
      const { complete, error, left } = outcomes
      expect(complete / gatewayCases).toBeGreaterThan(0.05)
      expect(error / gatewayCases).toBeGreaterThan(0.2)
      expect(left).toBeGreaterThan(4)
    }
    expect(open.gateway.status()).toMatchObject({ state: 'open', running: 0 })
    expect(open.store.reader.integrity()).toEqual([])
  }
  expect(await leftSince(before)).toEqual([])
  skip(isOneCase, whySkipped)
})

/** One model for each API, which answers everything, and the simulator; whatever name is left of a request finds one. */
async function answeringGateway(asked: ReadonlyMap<string, Buffer>): Promise<OpenGateway> {
  const backends = apiNames.map((api) => {
    const answer = ({ stream = false, body: passed, traceparent = '' }: BackendRequest, body: string): Feed => {
      // Thrown here it is a fault of the gateway's own, and seen as one.
      if (readObject(body)['model'] !== 'upstream') throw new Error('the model is called by another name')
      if (passed !== undefined) expect(ownFields(passed.toString())).toEqual(ownFields(String(asked.get(traceparent))))
      return validFeed(api, stream, new Chance(body.length))
    }
    return [api, [new ByteBackend(api, answer)]] as const
  })
  return await OpenGateway.open({
    models: [
      ...apiNames.map((api) => ({
        name: api,
        upstreamName: 'upstream',
        api,
        maxTries: 1,
        backends: [{ url: 'http://fed.invalid' }],
      })),
      { name: 'sim', simulator: {}, maxTries: 1 },
    ],
    backends: Object.fromEntries(backends),
    aliases: { '*': 'sim' },
  })
}

/** What a client says and a gateway has no business to change, as JSON. */
function ownFields(body: string): string {
  const { model: _1, logprobs: _2, return_token_ids: _3, stream_options: _4, ...own } = readObject(body)
  return JSON.stringify(Object.entries(own).toSorted(([one], [other]) => (one < other ? -1 : 1)))
}

function isObject(value: Json): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
