import Anthropic from '@anthropic-ai/sdk'
import OpenAI from 'openai'
import { describe, expect, test } from 'vitest'
import { anyClient, joined, type Clients } from '../support/gateway/official-clients.ts'
import { modelName as model, sharedGateway, type TestSession } from '../support/gateway/gateway-over-simulator.ts'
import { answer, question } from '../support/gateway/calculator-tools.ts'

const apis = ['chat', 'responses', 'messages'] as const

type ErrorName = {
  [Name in keyof typeof OpenAI & keyof typeof Anthropic]: Name extends `${string}Error` ? Name : never
}[keyof typeof OpenAI & keyof typeof Anthropic]

/** The class that each client has for it. */
function errorClass(api: (typeof apis)[number], name: ErrorName) {
  return api === 'messages' ? Anthropic[name] : OpenAI[name]
}

function clientsOf(
  session: TestSession,
  options: { readonly apiKey?: string; readonly maxRetries?: number } = {},
): Clients {
  return { openai: session.openai().withOptions(options), anthropic: session.anthropic().withOptions(options) }
}

async function thrownBy(work: Promise<unknown>): Promise<unknown> {
  return await work.then(
    () => undefined,
    (thrown: unknown) => thrown,
  )
}

describe.for(apis)('the gateway refuses a client of %s', (api) => {
  const gateway = sharedGateway({
    models: { limited: { upstreamName: 'fault:trickle' } },
    simulator: { reasoning: true },
  })
  const { whole, stream } = anyClient[api]

  test('with a wrong key', async () => {
    const session = await gateway().startSession()
    const failed = await thrownBy(whole(clientsOf(session, { apiKey: 'wrong' })))
    expect(failed).toBeInstanceOf(errorClass(api, 'AuthenticationError'))
    expect(failed).toMatchObject({ status: 401, type: 'authentication_error' })
  })

  test('for an unknown model, streamed or not', async () => {
    const session = await gateway().startSession()
    for (const failed of [
      await thrownBy(whole(clientsOf(session), { model: 'smi' })),
      await thrownBy(joined(stream(clientsOf(session), { model: 'smi' }))),
    ]) {
      expect(failed).toBeInstanceOf(errorClass(api, 'NotFoundError'))
      expect(failed).toMatchObject({ status: 404, message: expect.stringContaining('Did you mean') })
      if (api !== 'messages') expect(failed).toMatchObject({ code: 'model_not_found', param: 'model' })
    }
  })

  test('if its session has ended', async () => {
    const session = await gateway().startSession()
    await session.end()
    const failed = await thrownBy(whole(clientsOf(session)))
    expect(failed).toBeInstanceOf(errorClass(api, 'APIError'))
    expect(failed).toMatchObject({ status: 410, message: expect.stringContaining('has ended') })
  })

  test('if its session is at its concurrency limit, with a retry-after header', async () => {
    const session = await gateway().startSession({ limits: { maxConcurrent: 1 } })
    const running = new AbortController()
    const pieces = stream(clientsOf(session), { model: 'limited', signal: running.signal })
    await pieces.next()
    const failed = await thrownBy(whole(clientsOf(session)))
    expect(failed).toBeInstanceOf(errorClass(api, 'RateLimitError'))
    expect(failed).toMatchObject({ status: 429 })
    expect((failed as InstanceType<typeof OpenAI.RateLimitError>).headers?.get('retry-after')).toBe('1')
    running.abort()
    await thrownBy(joined(pieces))
  })

  test('if its session budget is exhausted, and the client does not retry', async () => {
    const session = await gateway().startSession({ limits: { maxRequests: 1 } })
    let requests = 0
    const counted: typeof fetch = async (input, init) => {
      requests += 1
      return await fetch(input, init)
    }
    const options = { fetch: counted, maxRetries: 3 }
    const clients = {
      openai: session.openai().withOptions(options),
      anthropic: session.anthropic().withOptions(options),
    }
    expect(await whole(clients)).toContain(answer)
    const failed = await thrownBy(whole(clients))
    expect(failed).toBeInstanceOf(errorClass(api, 'RateLimitError'))
    expect(failed).toMatchObject({ status: 429, message: expect.stringContaining('maxRequests') })
    expect(requests).toBe(2)
  })
})

describe('an invalid request is refused with the name of the wrong field', () => {
  const gateway = sharedGateway({})

  test('chat', async () => {
    const session = await gateway().startSession()
    const failed = await thrownBy(session.openai().chat.completions.create({ model, messages: [] }))
    expect(failed).toBeInstanceOf(errorClass('chat', 'BadRequestError'))
    expect(failed).toMatchObject({ status: 400, param: 'messages', type: 'invalid_request_error' })
  })

  test('responses', async () => {
    const session = await gateway().startSession()
    const failed = await thrownBy(session.openai().responses.create({ model, input: question, temperature: -1 }))
    expect(failed).toBeInstanceOf(errorClass('responses', 'BadRequestError'))
    expect(failed).toMatchObject({ status: 400, param: 'temperature', type: 'invalid_request_error' })
  })

  test('messages', async () => {
    const session = await gateway().startSession()
    const failed = await thrownBy(session.anthropic().messages.create({ model, max_tokens: 9, messages: [] }))
    expect(failed).toBeInstanceOf(errorClass('messages', 'BadRequestError'))
    expect(failed).toMatchObject({ status: 400, type: 'invalid_request_error' })
    expect(failed).toMatchObject({
      message: expect.stringContaining('messages must be'),
      requestID: expect.any(String),
    })
  })
})

describe.for(apis)('a failure of a backend of %s reaches every client', (backend) => {
  const gateway = sharedGateway({
    api: backend,
    simulator: { contextLength: 8000 },
    models: Object.fromEntries(
      ['serverError', 'cut', 'malformed', 'quietEnd', 'midstreamError'].map((fault) => [
        fault,
        { upstreamName: `fault:${fault}` },
      ]),
    ),
  })

  test.for(apis)('as an error of its own API: %s', async (api) => {
    const session = await gateway().startSession()
    const { whole, stream } = anyClient[api]
    for (const [fault, status] of [
      ['serverError', 500],
      ['cut', 502],
      ['malformed', 502],
    ] as const) {
      const failed = await thrownBy(whole(clientsOf(session), { model: fault }))
      expect(failed).toBeInstanceOf(errorClass(api, 'InternalServerError'))
      expect(failed).toMatchObject({ status })
    }
    const refused = await thrownBy(joined(stream(clientsOf(session), { model: 'serverError' })))
    expect(refused).toMatchObject({ status: 500 })
    expect(await session.view()).toMatchObject({ interactions: 0 })
  })

  test.for(apis)('as a stream without an end, which is not recorded as complete: %s', async (api) => {
    const session = await gateway().startSession()
    for (const fault of ['cut', 'quietEnd', 'midstreamError']) {
      const failed = await thrownBy(joined(anyClient[api].stream(clientsOf(session), { model: fault })))
      expect(failed).toBeInstanceOf(errorClass(api, 'APIError'))
    }
    expect(await session.view()).toMatchObject({ interactions: 0, discarded: 3 })
  })

  test.for(apis)('as the context length error of its API: %s', async (api) => {
    const session = await gateway().startSession()
    const failed = await thrownBy(anyClient[api].whole(clientsOf(session), { text: 'many words '.repeat(8000) }))
    expect(failed).toBeInstanceOf(errorClass(api, 'BadRequestError'))
    if (api === 'messages') expect(failed).toMatchObject({ message: expect.stringContaining('prompt is too long') })
    else expect(failed).toMatchObject({ code: 'context_length_exceeded' })
  })
})
