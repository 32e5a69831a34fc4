import { beforeEach, describe, expect, test, vi } from 'vitest'
import { chatServer } from '../../apis/index.ts'
import { MillraceError } from '../../errors/index.ts'
import { type CompleteReply, type ModelClient, type ModelReply, WeightVersions } from '../../inference/index.ts'
import { RecordingClient } from '../../../test/support/gateway/recording-client.ts'
import type { GatewayModel } from '../models.ts'
import { clientClosedStatus } from './client-reply.ts'
import { LiveRequest } from './live-request.ts'
import { UpstreamRequest } from './upstream-request.ts'
import { parsedMembers } from '../../endpoint/index.ts'
import { IncomingRequest } from './incoming-request.ts'

const waitRules = { beatMs: 1000, end: undefined }

test('a model that throws at the start fails the request, and no caller keeps waiting', async () => {
  const client = new RecordingClient()
  const interaction = new LiveRequest({ upstream: upstreamTo(throwing, client), client, waitRules })
  expect(await interaction.start()).toMatchObject({
    answer: { kind: 'broken', error: { code: 'internal', rawMessage: 'out of cells' } },
    status: 500,
  })
  expect(client).toMatchObject({ isEnded: true, status: 500 })
  // What comes too late changes nothing.
  client.leave()
  expect(interaction.signal.aborted).toBe(false)
})

test('a request that cannot be recorded is cancelled at the backend, with an error for the client', async () => {
  const client = new RecordingClient()
  const record = (): never => {
    throw new Error('no room in the tree')
  }
  const interaction = new LiveRequest({ upstream: upstreamTo(waiting, client), client, waitRules, record })
  expect(await interaction.start()).toMatchObject({
    answer: { kind: 'broken', error: { code: 'internal', rawMessage: 'no room in the tree' } },
    status: 500,
  })
  expect(interaction.signal.aborted).toBe(true)
  expect(client).toMatchObject({ isEnded: true, status: 500 })
})

describe('a client that joins a request as a stream', () => {
  beforeEach(fakeIntervals)

  test('gets heartbeats until the reply, and none after it', async () => {
    const { interaction, reply, join } = answeredLater()
    const { client, end } = join()
    vi.advanceTimersByTime(3000)
    expect(client.text).toBe(': on its way\n\n'.repeat(3))
    reply()
    expect(await end).toMatchObject({ answer: { kind: 'complete' }, status: 200 })
    await interaction.ended
    const { text } = client
    expect(client.isEnded).toBe(true)
    expect(text).toContain('hello to you')
    vi.advanceTimersByTime(3000)
    expect(client.text).toBe(text)
    expect(vi.getTimerCount()).toBe(0)
  })

  test('leaves no timer when it disconnects, and the others get the reply', async () => {
    const { interaction, reply, join, client: first } = answeredLater()
    const gone = join()
    const patient = join()
    expect(vi.getTimerCount()).toBe(2)
    gone.client.leave()
    expect(vi.getTimerCount()).toBe(1)
    patient.client.leave()
    expect(vi.getTimerCount()).toBe(0)
    reply()
    expect(await interaction.ended).toMatchObject({ status: 200 })
    expect(first.text).toContain('hello to you')
    expect(await gone.end).toMatchObject({ status: clientClosedStatus })
  })
})

describe('a client whose stream is requested as a whole reply', () => {
  beforeEach(fakeIntervals)

  test('gets heartbeats until the reply, and leaves no timer', async () => {
    const { interaction, client, reply } = askedWhole()
    vi.advanceTimersByTime(2000)
    expect(client.text).toBe(': on its way\n\n'.repeat(2))
    reply(hello)
    expect(await interaction.ended).toMatchObject({ status: 200 })
    expect(client.text).toContain('hello to you')
    expect(vi.getTimerCount()).toBe(0)
  })

  test('gets no heartbeats once the backend is asked for a stream', async () => {
    const { interaction, client, reply, isAskedAgain } = askedWhole()
    const error = new MillraceError('model_rejected', 'return_token_ids is unknown')
    reply({ status: 'failed', error, model: 'm', backend: 'b', tries: 1, ms: 0, waitMs: 0 })
    await isAskedAgain
    expect(vi.getTimerCount()).toBe(0)
    reply(hello)
    expect(await interaction.ended).toMatchObject({ status: 200 })
    expect(client.text).toContain('hello to you')
  })
})

function fakeIntervals(): () => void {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] })
  return () => vi.useRealTimers()
}

/** A stream whose tokens the backend gives in whole replies only. Each question is answered by a call of `reply`. */
function askedWhole() {
  const answers = [Promise.withResolvers<ModelReply>(), Promise.withResolvers<ModelReply>()] as const
  const asked = Promise.withResolvers<void>()
  let [questions, replies] = [0, 0]
  const call = (): Promise<ModelReply> => {
    const answer = answers[questions]
    questions += 1
    if (questions === answers.length) asked.resolve()
    return answer?.promise ?? expect.unreachable('it is asked twice at most')
  }
  const client = new RecordingClient()
  const upstream = upstreamTo({ ...throwing, call }, client, { isStream: true })
  const interaction = new LiveRequest({ upstream, client, waitRules })
  void interaction.start()
  const reply = (answer: ModelReply): void => {
    answers[replies]?.resolve(answer)
    replies += 1
  }
  return { interaction, client, reply, isAskedAgain: asked.promise }
}

test('a client that joins a request for a whole reply gets nothing before the reply', async () => {
  using _timers = { [Symbol.dispose]: fakeIntervals() }
  const { reply, join } = answeredLater()
  const { client, end } = join({ stream: false })
  expect(vi.getTimerCount()).toBe(0)
  reply()
  expect(await end).toMatchObject({ answer: { kind: 'complete' }, status: 200 })
  expect(client.document).toMatchObject({ object: 'chat.completion' })
})

test('a request is cancelled only when the last of its clients leaves', async () => {
  const { interaction, client: first, join } = answeredLater()
  const [second, third] = [join(), join()]
  first.leave()
  third.client.leave()
  expect(interaction.signal.aborted).toBe(false)
  second.client.leave()
  expect(interaction.signal.aborted).toBe(true)
})

/** A request whose model answers when `reply` is called. */
function answeredLater() {
  const answer = Promise.withResolvers<CompleteReply>()
  const client = new RecordingClient()
  const upstream = upstreamTo({ ...throwing, call: () => answer.promise }, client)
  const interaction = new LiveRequest({ upstream, client, waitRules })
  void interaction.start()
  const join = ({ stream = true } = {}) => {
    const joined = new RecordingClient()
    return { client: joined, end: interaction.join(joined, { ...upstream.request, stream }) }
  }
  return { interaction, client, join, reply: () => answer.resolve(hello) }
}

const hello: CompleteReply = {
  status: 'complete',
  message: { role: 'assistant', content: 'hello to you' },
  finishReason: 'stop',
  usage: { calls: 1, input: 1, cachedInput: 0, output: 3, reasoning: 0 },
  cost: null,
  model: 'm',
  backend: 'b',
  tries: 1,
  ms: 1,
  waitMs: 0,
}

/** With `isStream`: a stream for a session, of a backend that gives tokens in whole replies only. */
function upstreamTo(model: ModelClient, client: RecordingClient, { isStream = false } = {}): UpstreamRequest {
  const messages = [{ role: 'user', content: 'hello' }]
  const body = Buffer.from(JSON.stringify({ model: 'm', messages, stream: isStream }))
  const incoming = new IncomingRequest(
    { caller: { kind: 'admin', tenant: 't' }, api: 'chat', body, retryCount: 0 },
    client,
  )
  const request = chatServer.read(parsedMembers('chat', body.toString()))
  const parts = { request, model: modelOver(model, isStream), messages: request.messages, sessionId: 's' }
  return new UpstreamRequest(incoming, { ...parts, filledIn: 'nothing', isRecorded: isStream })
}

const throwing: ModelClient = {
  name: 'm',
  price: undefined,
  versions: new WeightVersions(),
  call: () => {
    throw new Error('out of cells')
  },
  countTokens: () => Promise.reject(new Error('out of cells')),
  endSession: () => {},
  status: () => ({ name: 'm', limit: 1, inFlight: 0, waiting: 0, parked: 0, calls: 0, tries: 0 }),
  [Symbol.asyncDispose]: () => Promise.resolve(),
}

/** Says nothing until it is abandoned. */
const waiting: ModelClient = {
  ...throwing,
  call: (_request, { signal }) =>
    new Promise((resolve) => {
      signal.addEventListener('abort', () => {
        const error = MillraceError.from(signal.reason, 'cancelled')
        resolve({ status: 'aborted', error, model: 'm', backend: 'b', tries: 1, ms: 0, waitMs: 0 })
      })
    }),
}

function modelOver(client: ModelClient, capturesTokens: boolean): GatewayModel {
  const fields = { return_token_ids: true }
  const tokenRequest = { fields, inStreams: !capturesTokens, isAccepted: false }
  const names = { name: 'm', upstreamName: 'm', api: 'chat' } as const
  return { ...names, capturesTokens, takesChoices: false, isSglang: false, isExact: false, tokenRequest, client }
}
