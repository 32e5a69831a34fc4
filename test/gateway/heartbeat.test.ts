import { text as readText } from 'node:stream/consumers'
import OpenAI from 'openai'
import { expect, test } from 'vitest'
import { SimulatorServer } from '../../src/simulator/index.ts'
import { apis, asked, TestGateway } from '../support/gateway/test-gateway.ts'
import { emittedIn, emittedSample, recordedSample, samplesOf } from '../support/gateway/emitted-tokens.ts'

const beat = ': on its way\n\n'

/** SGLang, whose streams are asked for whole in a session. It says nothing before it is told to go on. */
class PausedServer implements AsyncDisposable {
  readonly simulator: SimulatorServer
  readonly gateway: TestGateway

  private constructor(simulator: SimulatorServer, gateway: TestGateway) {
    this.simulator = simulator
    this.gateway = gateway
  }

  static async start(): Promise<PausedServer> {
    const simulator = await SimulatorServer.start({ imitate: 'sglang', recordEmitted: 10 })
    const backends = [{ url: simulator.url, engine: 'sglang' as const }]
    const gateway = await TestGateway.start({ models: [{ name: 'sim', backends }], bounds: { beatMs: 5 } })
    const over = new PausedServer(simulator, gateway)
    await over.pause()
    return over
  }

  async pause(): Promise<void> {
    await this.#tell('/pause_generation', { mode: 'in_place' })
  }

  async resume(): Promise<void> {
    await this.#tell('/continue_generation', {})
  }

  async #tell(path: string, body: object): Promise<void> {
    const url = new URL(path, this.simulator.url)
    const headers = { 'content-type': 'application/json' }
    const response = await fetch(url, { method: 'POST', headers, body: JSON.stringify(body) })
    expect(response.status).toBe(200)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.gateway[Symbol.asyncDispose]()
    await this.simulator.close()
  }
}

test.each(apis)('a client of %s gets heartbeats while its stream is requested as a whole reply', async (api) => {
  await using over = await PausedServer.start()
  const { gateway, simulator } = over
  const { id, key } = await gateway.startSession()
  const { path, body } = asked[api]
  const response = await gateway.open(path, { key, body: { ...body, stream: true } })
  expect(response).toMatchObject({
    statusCode: 200,
    headers: { 'content-type': expect.stringMatching(/event-stream/) },
  })
  await over.resume()
  const text = await readText(response.body)
  const events = text.replaceAll(beat, '')
  expect(text.length).toBeGreaterThan(events.length)
  // Nothing else is different.
  expect(text.lastIndexOf(beat)).toBeLessThan(text.indexOf('data: '))
  const rows = await samplesOf(gateway, id)
  expect(rows.map(recordedSample)).toEqual((await emittedIn(simulator, id)).map(emittedSample))
  expect(rows).toHaveLength(1)
})

test('the OpenAI client ignores heartbeats', async () => {
  await using over = await PausedServer.start()
  const { url, key: apiKey } = await over.gateway.startSession()
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey, maxRetries: 0 })
  const stream = await client.chat.completions.create({ ...asked.chat.body, messages: question, stream: true })
  await over.resume()
  let said = ''
  for await (const { choices } of stream) said += choices[0]?.delta.content ?? ''
  expect(said).toContain('42')
})

test('an error after a heartbeat is an event of the stream', async () => {
  await using over = await PausedServer.start()
  const { gateway } = over
  const { id, key } = await gateway.startSession()
  const response = await gateway.open(asked.chat.path, { key, body: { ...asked.chat.body, stream: true } })
  await gateway.ask(`/v1/sessions/${id}/end`, { method: 'POST' })
  const text = await readText(response.body)
  expect(text).toMatch(/data: \{"error":.*"session_ended".*\}\n\n$/)
})

test('a retry that joins a stream gets the same heartbeats and events', async () => {
  await using over = await PausedServer.start()
  const { gateway } = over
  const { id, key } = await gateway.startSession()
  const ask = { key, body: { ...asked.chat.body, stream: true } }
  const first = await gateway.open(asked.chat.path, ask)
  const retry = { ...ask, headers: { 'x-stainless-retry-count': '1' } }
  const second = await gateway.open(asked.chat.path, retry)
  await over.resume()
  const [said, again] = await Promise.all([readText(first.body), readText(second.body)])
  expect(again).toContain(beat)
  expect(again.replaceAll(beat, '')).toBe(said.replaceAll(beat, ''))
  expect(await samplesOf(gateway, id)).toHaveLength(1)

  await over.pause()
  const more = { messages: [{ role: 'user', content: 'more' }], model: 'sim', stream: true }
  const lost = await gateway.open(asked.chat.path, { ...ask, body: more })
  const also = await gateway.open(asked.chat.path, { ...retry, body: more })
  expect(also.statusCode).toBe(200)
  await gateway.ask(`/v1/sessions/${id}/end`, { method: 'POST' })
  for (const { body } of [lost, also]) {
    expect(await readText(body)).toMatch(/data: \{"error":.*"session_ended".*\}\n\n$/)
  }
})

test('a client of a whole reply gets no heartbeats, while a concurrent stream does', async () => {
  await using over = await PausedServer.start()
  const { gateway, simulator } = over
  const { key } = await gateway.startSession()
  const whole = gateway.ask(asked.chat.path, { key, body: asked.chat.body })
  await expect.poll(() => simulator.stats.inFlight).toBe(1)
  const stream = await gateway.open(asked.chat.path, { key, body: { ...asked.chat.body, stream: true } })
  let beats = ''
  for await (const piece of stream.body.setEncoding('utf8') as AsyncIterable<string>) {
    const wasSilent = beats.length < 3 * beat.length
    beats += piece
    // By then the other request has been under way for longer.
    if (wasSilent && beats.length >= 3 * beat.length) await over.resume()
  }
  expect(await whole).toMatchObject({
    status: 200,
    headers: { 'content-type': expect.stringMatching(/^application\/json/) },
    body: { object: 'chat.completion', choices: [{ finish_reason: 'stop' }] },
  })
  expect((await whole).text).not.toContain(beat)
})

test('a client that waits for a backend gets no heartbeats, only the final error', async () => {
  const nowhere = { name: 'sim', backends: [{ url: 'http://127.0.0.1:9/v1', engine: 'sglang' as const }] }
  await using lonely = await TestGateway.start({ models: [nowhere], bounds: { beatMs: 1_000, maxWaitMs: 1_500 } })
  const session = await lonely.startSession()
  const refused = await lonely.ask(asked.chat.path, { key: session.key, body: { ...asked.chat.body, stream: true } })
  expect(refused).toMatchObject({
    status: 503,
    headers: { 'retry-after': '1' },
    body: { error: { code: 'overloaded' } },
  })
})

const question: OpenAI.ChatCompletionMessageParam[] = [{ role: 'user', content: 'What is 6 * 7?' }]
