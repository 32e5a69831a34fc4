import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text as readText } from 'node:stream/consumers'
import { describe, expect, test } from 'vitest'
import { findModels } from '../../src/serve/index.ts'
import { SimulatorServer, type SimulatorServerOptions } from '../../src/simulator/index.ts'
import { documentsOf, readEvents } from '../support/gateway/stream-events.ts'
import { Talk } from '../support/gateway/scripted-conversation.ts'
import { asked, TestGateway, type Started } from '../support/gateway/test-gateway.ts'
import { emittedIn, emittedSample, mergedRowsOf, recordedSample, samplesOf } from '../support/gateway/emitted-tokens.ts'
import { apiClients, apiNames } from '../support/gateway/api-clients.ts'

const unasked = /meta_info|sgl_?ext|token_ids|routed_experts|"logprob"/

/** A gateway that asked what is behind it: SGLang, unless told otherwise. */
class OverSglang implements AsyncDisposable {
  readonly simulator: SimulatorServer
  readonly gateway: TestGateway

  private constructor(simulator: SimulatorServer, gateway: TestGateway) {
    this.simulator = simulator
    this.gateway = gateway
  }

  static async start(options: SimulatorServerOptions = {}): Promise<OverSglang> {
    const settings = { imitate: 'sglang', recordEmitted: 100, weightVersion: 'v1', routedExperts: '2x2' } as const
    const simulator = await SimulatorServer.start({ ...settings, ...options })
    const signal = AbortSignal.timeout(20_000)
    const { models, facts } = await findModels({ backends: [simulator.url], model: 'sim', env: {}, signal })
    return new OverSglang(simulator, await TestGateway.start({ models, facts }))
  }

  /** What is exported of a session is what left the backend, bit for bit. */
  async expectSamples(session: Started, count: number): Promise<void> {
    const emitted = await emittedIn(this.simulator, session.id)
    expect(emitted).toHaveLength(count)
    const rows = await samplesOf(this.gateway, session.id)
    expect(rows.map(recordedSample)).toEqual(emitted.map(emittedSample))
    expect(rows.every(({ routedExperts, versions }) => routedExperts?.length && versions?.length)).toBe(true)
    expect((await this.gateway.ask(`/v1/sessions/${session.id}`)).body).toMatchObject({ alarms: [] })
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.gateway[Symbol.asyncDispose]()
    await this.simulator.close()
  }
}

/** Passes everything on but requests that ask for token ids. */
class PickyServer implements AsyncDisposable {
  readonly url: string
  readonly #server: Server

  private constructor(server: Server) {
    this.#server = server
    this.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`
  }

  static async start(target: string, message: string): Promise<PickyServer> {
    const server = createServer(async (incoming, response) => {
      const body = await readText(incoming)
      const isRefused = body.includes('return_token_ids')
      const answer = isRefused ? undefined : await fetch(new URL(incoming.url ?? '', target), { method: 'POST', body })
      response.writeHead(answer?.status ?? 400, {
        'content-type': answer?.headers.get('content-type') ?? 'application/json',
      })
      response.end(answer ? await answer.text() : JSON.stringify({ error: { message } }))
    })
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    return new PickyServer(server)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections()
    this.#server.close()
    await once(this.#server, 'close')
  }
}

describe.each(apiNames)('%s', (api) => {
  test.each([false, true])('a conversation is recorded with exact tokens, streamed: %s', async (stream) => {
    await using over = await OverSglang.start({ reasoning: true })
    const { gateway, simulator } = over
    const session = await gateway.startSession()
    const talk = new Talk(gateway, session, apiClients[api], { tools: true })
    const { requests, byStatus } = simulator.stats
    const turns = 4
    for (let turn = 0; turn < turns; turn += 1) {
      if (talk.openCalls.length > 0) talk.results(['a word'])
      else talk.user(`What is word ${turn}?`)
      talk.take(await talk.ask({ stream }))
    }
    await over.expectSamples(session, turns)
    // Nothing was asked twice, and nothing refused.
    expect(simulator.stats.requests).toBe(requests + turns)
    expect(simulator.stats.byStatus['400']).toBe(byStatus['400'])
  })
})

const question = { model: 'sim', messages: [{ role: 'user', content: 'What is 6 * 7?' }] }

test('a Chat client sees only the fields it requested, also in a stream', async () => {
  await using over = await OverSglang.start()
  const { gateway } = over
  const { key, ...session } = await gateway.startSession()
  for (const stream of [false, true]) {
    const { text } = await gateway.ask('/v1/chat/completions', { key, body: { ...question, stream } })
    expect(text).toContain('42')
    expect(text).not.toMatch(unasked)
    const wanted = await gateway.ask('/v1/chat/completions', { key, body: { ...question, stream, logprobs: true } })
    expect(wanted.text).toContain('"logprob":')
    expect(wanted.text).not.toMatch(/meta_info|token_ids/)
  }
  const own = { return_meta_info: true, return_prompt_token_ids: true }
  const { body } = await gateway.ask('/v1/chat/completions', { key, body: { ...question, ...own } })
  expect(body).toMatchObject({ choices: [{ prompt_token_ids: expect.any(Array) as unknown[], meta_info: {} }] })
  await over.expectSamples({ key, ...session }, 5)
})

test('outside of a session a stream is passed on in pieces', async () => {
  await using over = await OverSglang.start({ tokensPerSecond: 200 })
  const { text } = await over.gateway.ask('/v1/chat/completions', { body: { ...question, stream: true } })
  expect(text).toMatch(/data: \[DONE\]\n\n$/)
  const contents = documentsOf(readEvents(text)).filter((document) => JSON.stringify(document).includes('"content":'))
  expect(contents.length).toBeGreaterThan(2)
})

test('an unprobed server refuses one stream, and is then asked for whole replies', async () => {
  await using simulator = await SimulatorServer.start({ imitate: 'sglang', recordEmitted: 10 })
  await using gateway = await TestGateway.start({ models: [{ name: 'sim', backends: [{ url: simulator.url }] }] })
  const session = await gateway.startSession()
  const ask = () => gateway.ask('/v1/chat/completions', { key: session.key, body: { ...question, stream: true } })
  expect(await ask()).toMatchObject({ status: 200, text: expect.stringContaining('42') as string })
  expect(simulator.stats.byStatus).toEqual({ 400: 1, 200: 1 })
  expect(await ask()).toMatchObject({ status: 200, text: expect.stringMatching(/data: \[DONE\]\n\n$/) as string })
  expect(simulator.stats.byStatus).toEqual({ 400: 1, 200: 2 })
  const rows = await samplesOf(gateway, session.id)
  expect(rows.map(recordedSample)).toEqual((await emittedIn(simulator, session.id)).map(emittedSample))
})

test.each(['return_token_ids: unknown field', 'something is wrong'])(
  'a server that refuses the added fields (%s) gets the original request, and an alarm is raised',
  async (message) => {
    await using simulator = await SimulatorServer.start({ imitate: 'openai' })
    await using picky = await PickyServer.start(simulator.url, message)
    await using gateway = await TestGateway.start({ models: [{ name: 'sim', backends: [{ url: picky.url }] }] })
    const { id, key } = await gateway.startSession()
    for (const stream of [false, true]) {
      const { status, text } = await gateway.ask('/v1/chat/completions', { key, body: { ...question, stream } })
      expect([status, text]).toEqual([200, expect.stringContaining('42')])
    }
    // What the client itself asked for is refused as before.
    const own = await gateway.ask('/v1/chat/completions', { key, body: { ...question, return_token_ids: true } })
    expect([own.status, own.text]).toEqual([400, expect.stringContaining(message)])
    const { body } = await gateway.ask(`/v1/sessions/${id}/end`, { method: 'POST' })
    expect(body).toMatchObject({ interactions: 2, alarms: [expect.any(String)] })
  },
)

describe('SGLang’s own API', () => {
  const prompts = { text: { text: 'What is 6 * 7?' }, ids: { input_ids: [5, 6, 7] } }

  test.each(['text', 'ids'] as const)('a prompt of %s is recorded with the sampled tokens', async (form) => {
    await using over = await OverSglang.start({ tokensPerSecond: 2000 })
    const { gateway } = over
    const session = await gateway.startSession()
    const prompt = prompts[form]
    const whole = await gateway.ask('/generate', { key: session.key, body: { ...prompt, rid: 'r-1' } })
    expect(whole).toMatchObject({ status: 200, body: { meta_info: { id: 'r-1', finish_reason: { type: 'stop' } } } })
    expect(whole.text).not.toMatch(/logprob|prompt_token_ids|routed_experts/)
    const streamed = await gateway.ask(`/sessions/${session.id}/generate`, { body: { ...prompt, stream: true } })
    expect(streamed.text).toMatch(/data: \[DONE\]\n\n$/)
    expect(streamed.text).not.toMatch(/logprob|prompt_token_ids|routed_experts/)
    const events = documentsOf(readEvents(streamed.text))
    expect(events.length).toBeGreaterThan(1)
    expect(events.at(-1)).toMatchObject({ text: whole.body['text'], output_ids: whole.body['output_ids'] })
    await over.expectSamples(session, 2)
    const rows = await samplesOf(gateway, session.id)
    const said = { role: 'user', content: form === 'text' ? prompts.text.text : '' }
    expect(rows.map(({ messages }) => messages[0])).toEqual([said, said])
    expect(rows[0]).toMatchObject({ api: 'generate', interaction: 'r-1' })
    expect(await mergedRowsOf(gateway, session.id)).toHaveLength(2)
  })

  test('a request that refers to a prompt kept by SGLang is refused in a session', async () => {
    await using over = await OverSglang.start()
    const { gateway } = over
    const { key } = await gateway.startSession()
    const held = { model: 'sim', session_params: { id: 'kept', rid: 'r-1' } }
    const bodies = { '/generate': { ...prompts.ids, ...held }, [asked.chat.path]: { ...asked.chat.body, ...held } }
    for (const [path, body] of Object.entries(bodies)) {
      const refused = await gateway.ask(path, { key, body })
      expect(refused.status, path).toBe(400)
      expect(refused.text).toContain('only the provider has the content of: session_params')
      expect(await gateway.ask(path, { body })).toMatchObject({ status: 200 })
    }
  })

  test('a token prompt continues the reply that it begins with, and returns propagate back', async () => {
    await using over = await OverSglang.start()
    const { gateway } = over
    const session = await gateway.startSession()
    const ask = async (ids: readonly number[], rid: string): Promise<number[]> => {
      const { body } = await gateway.ask('/generate', { key: session.key, body: { input_ids: ids, rid } })
      return [...ids, ...(body['output_ids'] as number[])]
    }
    const first = await ask([5, 6, 7], 'first')
    // Two branches after it, of which one goes on; the last has nothing to do with any of them.
    const second = await ask([...first, 100], 'second')
    await ask([...first, 200], 'branch')
    await ask([...second, 300], 'third')
    await ask([...first.slice(0, -1), 9, 9], 'other')
    const rewarded = { reward: 1, interactionId: 'third' }
    await gateway.ask(`/v1/sessions/${session.id}/rewards`, { body: rewarded })
    const rows = await samplesOf(gateway, session.id)
    expect(rows.map(({ interaction, parentInteraction }) => [interaction, parentInteraction])).toEqual([
      ['first', null],
      ['second', 'first'],
      ['branch', 'first'],
      ['third', 'second'],
      ['other', null],
    ])
    const merged = await mergedRowsOf(gateway, session.id)
    const samples = merged.map((row) => row.samples.map(({ interaction, return: worth }) => [interaction, worth]))
    expect(samples).toEqual([
      [
        ['first', 1],
        ['branch', null],
      ],
      [
        ['first', 1],
        ['second', 1],
        ['third', 1],
      ],
      [['other', null]],
    ])
  })

  test('a weight change during a stream is recorded at the exact token', async () => {
    await using over = await OverSglang.start({ tokensPerSecond: 100 })
    const session = await over.gateway.startSession()
    const body = { text: 'Say something long.', stream: true }
    const response = await over.gateway.open('/generate', { key: session.key, body })
    let isFirst = true
    for await (const _piece of response.body) {
      if (isFirst) over.simulator.simulator.change({ weightVersion: 'v2' })
      isFirst = false
    }
    await over.expectSamples(session, 1)
    const [row] = await samplesOf(over.gateway, session.id)
    expect(row?.versions?.map(({ version }) => version)).toEqual(['v1', 'v2'])
  })

  test('the client gets the fields it requested, also in a retry', async () => {
    await using over = await OverSglang.start()
    const session = await over.gateway.startSession()
    const body = { ...prompts.text, rid: 'r', return_logprob: true, return_prompt_token_ids: true }
    const first = await over.gateway.ask('/generate', { key: session.key, body })
    expect(first.body).toMatchObject({ prompt_token_ids: expect.any(Array) as unknown[] })
    const headers = { 'x-stainless-retry-count': '1' }
    const again = await over.gateway.ask('/generate', { key: session.key, body, headers })
    const { text, output_ids, prompt_token_ids } = first.body
    expect(again.body).toMatchObject({
      text,
      output_ids,
      prompt_token_ids,
      meta_info: { id: 'r', weight_version: 'v1' },
    })
    await over.expectSamples(session, 1)
  })

  test('a client that disconnects aborts the generation, and the partial reply is a lost sample', async () => {
    await using over = await OverSglang.start({ ttftMs: 1, tokensPerSecond: 1 })
    const session = await over.gateway.startSession()
    const body = { ...prompts.text, rid: 'gone', stream: true }
    const response = await over.gateway.open('/generate', { key: session.key, body })
    for await (const _piece of response.body) break
    await expect.poll(() => over.simulator.stats.aborted).toBe(1)
    await expect.poll(() => samplesOf(over.gateway, session.id)).toMatchObject([{ discarded: 'client_gone' }])
    const [lost] = await samplesOf(over.gateway, session.id)
    const [emitted] = await emittedIn(over.simulator, session.id)
    expect(Array.from(lost?.promptIds ?? [])).toEqual(emitted?.promptIds)
    expect(emitted?.ids.slice(0, lost?.ids?.length)).toEqual(Array.from(lost?.ids ?? []))
  })

  test('a request outside of a session is passed on unchanged', async () => {
    await using over = await OverSglang.start()
    const { body } = await over.gateway.ask('/generate', { body: prompts.text })
    expect(body).toMatchObject({ text: 'The answer is 42.' })
    expect(JSON.stringify(body)).not.toMatch(/logprob/)
  })

  test('errors have the SGLang format', async () => {
    await using over = await OverSglang.start()
    const errorOf = async (body: unknown, key?: string) => {
      const { status, body: answer } = await over.gateway.ask('/generate', { body, ...(key !== undefined && { key }) })
      return [status, answer]
    }
    const saying = (text: string) => ({ error: { message: expect.stringContaining(text) as string } })
    expect(await errorOf({ text: ['a', 'b'] })).toEqual([400, saying('text must be one string')])
    expect(await errorOf({ input_ids: [[1]] })).toEqual([400, saying('input_ids must be one list')])
    expect(await errorOf({ text: 'a', sampling_params: { n: 2 } })).toEqual([400, saying('sampling_params.n')])
    expect(await errorOf('{')).toEqual([400, saying('not JSON')])
    expect(await errorOf({ model: 'other', text: 'a' })).toEqual([404, saying('other')])
    expect(await errorOf({ text: 'a', input_ids: [1] })).toEqual([400, saying('either text or input_ids')])
    expect(await errorOf({ text: 'a' }, 'wrong')).toEqual([401, saying('key')])
  })

  test('a request must name its model if there are several', async () => {
    await using simulator = await SimulatorServer.start({ imitate: 'sglang' })
    const backends = [{ url: simulator.url, engine: 'sglang' as const }]
    const models = ['a', 'b'].map((name) => ({ name, backends }))
    await using gateway = await TestGateway.start({ models: [...models, { name: 'other', simulator: {} }] })
    const unnamed = await gateway.ask('/generate', { body: prompts.text })
    expect([unnamed.status, unnamed.text]).toEqual([400, expect.stringContaining('Models that support it: a, b.')])
    expect((await gateway.ask('/generate', { body: { ...prompts.text, model: 'b' } })).status).toBe(200)
    expect((await gateway.ask('/generate', { body: { ...prompts.text, model: 'other' } })).status).toBe(400)
  })

  test('a request for a model that SGLang does not serve is refused', async () => {
    await using gateway = await TestGateway.start()
    const { status, body } = await gateway.ask('/generate', { body: { model: 'sim', text: 'a' } })
    expect(status).toBe(400)
    expect(body).toEqual({ error: { message: expect.stringContaining('model sim is not served by SGLang') as string } })
  })
})
