import { once } from 'node:events'
import { createServer, request, type ClientRequest, type IncomingMessage } from 'node:http'
import type { AddressInfo } from 'node:net'
import { expect, test } from 'vitest'
import type { MillraceError } from '../../errors/index.ts'
import { BodyIntake, type BufferedBody } from './body.ts'

interface Outcome {
  readonly problem: MillraceError | undefined
  readonly body: BufferedBody | undefined
}

/** A server that takes bodies in and answers with what came of them. */
async function intakeServer(
  bounds: { maxBodyBytes?: number; maxBodiesBytes?: number },
  onRequest: (request: IncomingMessage) => void = () => {},
) {
  const intake = new BodyIntake({ maxBodyBytes: 1000, maxBodiesBytes: 2000, fullStatus: 503, ...bounds })
  const outcomes: Outcome[] = []
  const server = createServer((incoming, response) => {
    onRequest(incoming)
    intake.read(incoming).then(
      (body) => {
        outcomes.push({ problem: undefined, body })
        response.end(String(body.length))
      },
      (problem: MillraceError) => {
        outcomes.push({ problem, body: undefined })
        response.end(String(problem.data['status']))
      },
    )
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const open = (headers: Record<string, string>): ClientRequest => {
    const client = request({ port, host: '127.0.0.1', method: 'POST', headers })
    client.on('error', () => {})
    return client
  }
  const answer = async (client: ClientRequest): Promise<string> => {
    const [response] = (await once(client, 'response')) as [IncomingMessage]
    return (await response.setEncoding('utf8').toArray()).join('')
  }
  return {
    intake,
    outcomes,
    open,
    answer,
    post: (text: string) => {
      const client = open({ 'content-length': String(Buffer.byteLength(text)) })
      client.end(text)
      return answer(client)
    },
    async [Symbol.asyncDispose]() {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

test('a body is complete, in one piece or many, and counts until it is released', async () => {
  await using server = await intakeServer({})
  expect(await server.post('{"a":1}')).toBe('7')
  const client = server.open({ 'transfer-encoding': 'chunked' })
  client.write('[1,')
  client.write('2,')
  client.end('3]')
  expect(await server.answer(client)).toBe('7')
  expect(server.outcomes.map(({ body }) => body?.bytes.toString())).toEqual(['{"a":1}', '[1,2,3]'])
  expect(server.intake.bufferedBytes).toBe(14)
  for (const { body } of server.outcomes) body?.[Symbol.dispose]()
  server.outcomes[0]?.body?.[Symbol.dispose]()
  expect(server.intake.bufferedBytes).toBe(0)
})

test('a body sent byte by byte is stored in larger pieces', async () => {
  await using server = await intakeServer({ maxBodyBytes: 10_000, maxBodiesBytes: 10_000 })
  const text = Array.from({ length: 5_000 }, (_, index) => String(index % 10)).join('')
  const client = server.open({ 'transfer-encoding': 'chunked' })
  for (const character of text) client.write(character)
  client.end()
  expect(await server.answer(client)).toBe('5000')
  const [{ body } = { body: undefined }] = server.outcomes
  expect(body?.parts.length).toBeLessThan(300)
  expect(body?.bytes.toString()).toBe(text)
})

test.each([
  ['gzip', '415'],
  ['identity', '2'],
])('a body with content encoding %s', async (encoding, answer) => {
  await using server = await intakeServer({})
  const client = server.open({ 'content-encoding': encoding })
  client.end('{}')
  expect(await server.answer(client)).toBe(answer)
})

test('a body that is too large is refused, by its declared or its actual length', async () => {
  await using server = await intakeServer({})
  expect(await server.post('x'.repeat(1001))).toBe('413')
  const client = server.open({ 'transfer-encoding': 'chunked' })
  client.write('x'.repeat(600))
  client.end('x'.repeat(600))
  expect(await server.answer(client)).toBe('413')
  expect(server.intake.bufferedBytes).toBe(0)
})

test('all bodies share a limit, and refused bodies do not count', async () => {
  await using server = await intakeServer({})
  expect(await server.post('1'.repeat(1000))).toBe('1000')
  expect(await server.post('1'.repeat(1000))).toBe('1000')
  expect(await server.post('1')).toBe('503')
  expect(server.outcomes.at(-1)?.problem).toMatchObject({ code: 'overloaded', data: { retryAfterMs: 1000 } })
  server.outcomes[0]?.body?.[Symbol.dispose]()
  expect(await server.post('1')).toBe('1')
})

test('a declared length does not count before its bytes arrive', async () => {
  await using server = await intakeServer({})
  const idle = [server.open({ 'content-length': '1000' }), server.open({ 'content-length': '1000' })]
  for (const client of idle) client.write('[')
  await expect.poll(() => server.intake.bufferedBytes).toBe(2)
  expect(await server.post('1'.repeat(1000))).toBe('1000')
  // When it comes after all, and there is no room any more, it is refused in the middle.
  expect(await server.post('1'.repeat(900))).toBe('900')
  const [late] = idle
  late?.end(`${'1'.repeat(998)}]`)
  expect(late && (await server.answer(late))).toBe('503')
  idle[1]?.destroy()
  await expect.poll(() => server.intake.bufferedBytes).toBe(1900)
})

test('a client that leaves during the body cancels its request', async () => {
  await using server = await intakeServer({})
  const client = server.open({ 'content-length': '100' })
  client.write('half')
  await expect.poll(() => server.intake.bufferedBytes).toBe(4)
  client.destroy()
  await expect.poll(() => server.outcomes.length).toBe(1)
  expect(server.outcomes).toMatchObject([{ problem: { code: 'cancelled', data: { status: 499 } } }])
  expect(server.intake.bufferedBytes).toBe(0)
})

test('a client that leaves after its whole body still gives one body', async () => {
  const closed = Promise.withResolvers<number>()
  await using server = await intakeServer({}, (incoming) => {
    incoming.once('end', () => incoming.destroy())
    incoming.once('close', () => closed.resolve(server.outcomes.length))
  })
  server.open({}).end('whole')
  // It is handed over at the end of the turn of the loop, when the client has gone.
  expect(await closed.promise).toBe(0)
  await expect.poll(() => server.outcomes.map(({ body }) => body?.bytes.toString())).toEqual(['whole'])
  server.outcomes[0]?.body?.[Symbol.dispose]()
  expect(server.intake.bufferedBytes).toBe(0)
})
