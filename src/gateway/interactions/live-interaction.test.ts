import { expect, test } from 'vitest'
import { chatServer } from '../../dialects/index.ts'
import { MillraceError } from '../../errors/index.ts'
import type { ModelClient } from '../../inference/index.ts'
import { RecordingClient } from '../_testing/recording-client.ts'
import type { GatewayModel } from '../gateway-models.ts'
import { LiveInteraction } from './live-interaction.ts'
import { UpstreamRequest } from './_upstream-request.ts'
import { readRequest } from './_read-request.ts'
import { IncomingRequest } from './incoming-request.ts'

const waitRules = { maxWaitMs: 1000, beatMs: 1000, end: undefined }

test('a model that throws before it has begun fails the request, and nothing waits for it', async () => {
  const client = new RecordingClient()
  const interaction = new LiveInteraction({ upstream: upstreamTo(throwing, client), client, waitRules })
  expect(await interaction.start()).toMatchObject({
    answer: { kind: 'broken', error: { code: 'internal', rawMessage: 'out of cells' } },
    status: 500,
  })
  expect(client).toMatchObject({ isEnded: true, status: 500 })
  // What comes too late changes nothing.
  client.leave()
  expect(interaction.signal.aborted).toBe(false)
})

test('a request that cannot be recorded is given up at the backend, and its client is told', async () => {
  const client = new RecordingClient()
  const record = (): never => {
    throw new Error('no room in the tree')
  }
  const interaction = new LiveInteraction({ upstream: upstreamTo(waiting, client), client, waitRules, record })
  expect(await interaction.start()).toMatchObject({
    answer: { kind: 'broken', error: { code: 'internal', rawMessage: 'no room in the tree' } },
    status: 500,
  })
  expect(interaction.signal.aborted).toBe(true)
  expect(client).toMatchObject({ isEnded: true, status: 500 })
})

function upstreamTo(model: ModelClient, client: RecordingClient): UpstreamRequest {
  const body = Buffer.from(JSON.stringify({ model: 'm', messages: [{ role: 'user', content: 'hello' }] }))
  const incoming = new IncomingRequest(
    { caller: { kind: 'admin', tenant: 't' }, api: 'chat', body, retryCount: 0 },
    client,
  )
  const request = readRequest(chatServer, body.toString())
  const parts = { request, model: modelOver(model), messages: request.messages, sessionId: 's' }
  return new UpstreamRequest(incoming, { ...parts, filledIn: 'nothing', isRecorded: false })
}

const throwing: ModelClient = {
  name: 'm',
  price: undefined,
  call: () => {
    throw new Error('out of cells')
  },
  countTokens: () => Promise.reject(new Error('out of cells')),
  endSession: () => {},
  status: () => ({ name: 'm', limit: 1, inFlight: 0, waiting: 0, parked: 0, calls: 0, tries: 0 }),
  [Symbol.asyncDispose]: () => Promise.resolve(),
}

/** Says nothing until it is given up. */
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

function modelOver(client: ModelClient): GatewayModel {
  const tokenRequest = { fields: {}, inStreams: true, isAccepted: false }
  const names = { name: 'm', upstreamName: 'm', api: 'chat' } as const
  return { ...names, capturesTokens: false, isSglang: false, tokenRequest, client }
}
