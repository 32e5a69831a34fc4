import { fastify } from 'fastify'
import { expect, test } from 'vitest'
import { z } from 'zod'
import { MillraceError } from '../../../errors/index.ts'
import { safeParse } from '../../../schema/index.ts'
import { RouteRegistry } from '../../http/routes.ts'
import { SessionCookies } from './session-cookie.ts'
import { missing, objectBody, refusalOf } from '../fastapi/wire-errors.ts'
import { refuseOnGymWire, sessionOf, useGymWire } from './wire-scope.ts'

const rowSchema = z.strictObject({ count: z.number(), task: z.strictObject({ name: z.string() }) })

/** A server with one route, which fails as its body says. */
async function startServer() {
  const app = fastify()
  const registry = new RouteRegistry(app)
  const cookies = new SessionCookies('Millrace', 'test')
  const faults: string[] = []
  app.removeAllContentTypeParsers()
  app.addContentTypeParser('application/json', { parseAs: 'buffer' }, (_request, body, done) => done(null, body))
  app.setNotFoundHandler((request, reply) => {
    const unrouted = registry.unrouted(request, () => '')
    return refuseOnGymWire(request, reply, unrouted) ?? reply.code(404).send('elsewhere')
  })
  app.register((scope, _options, done) => {
    useGymWire(scope, cookies, { onFault: ({ code }) => faults.push(code) })
    scope.post('/verify', { config: { gymCookies: cookies } }, async (request, reply) => {
      const row = objectBody((request.body as Buffer | undefined) ?? Buffer.alloc(0))
      if (row['fail'] === 'status') throw new MillraceError('overloaded', 'too much', { data: { status: 503 } })
      if (row['fail'] === 'tool') throw new MillraceError('tool_failed', 'boom')
      if (row['fail'] === 'bug') throw new TypeError('secret')
      const { data, error } = safeParse(rowSchema, row)
      if (!data) throw refusalOf(error.issues, row)
      return await reply.send({ id: sessionOf(request).id })
    })
    done()
  })
  const url = await app.listen()
  const ask = async (body: string | undefined, headers: Record<string, string> = {}, method = 'POST') => {
    const type = body === undefined ? undefined : { 'content-type': 'application/json' }
    const response = await fetch(`${url}/verify`, {
      method,
      headers: { ...type, ...headers },
      ...(body !== undefined && { body }),
    })
    const cookie = response.headers.get('set-cookie') ?? ''
    return { status: response.status, body: await response.text(), cookie, headers: response.headers }
  }
  return { ask, faults, [Symbol.asyncDispose]: () => app.close() }
}

const right = JSON.stringify({ count: 1, task: { name: 'a' } })

test('a session is kept over replies and errors alike', async () => {
  await using server = await startServer()
  const first = await server.ask(right)
  expect(first).toMatchObject({ status: 200 })
  const [cookie = ''] = first.cookie.split(';', 1)
  for (const [body, status] of [
    ['{', 422],
    ['{"fail":"status"}', 503],
    ['{"fail":"tool"}', 500],
    ['{"fail":"bug"}', 500],
  ] as const) {
    const failed = await server.ask(body, { cookie })
    expect(failed.status).toBe(status)
    expect(failed.headers.get('vary')).toBe('Cookie')
    const again = await server.ask(right, { cookie: failed.cookie.split(';', 1)[0] ?? '' })
    expect(again.body).toBe(first.body)
  }
  expect((await server.ask(right)).body).not.toBe(first.body)
  expect(server.faults).toEqual(['overloaded', 'tool_failed', 'internal'])
})

test.each([
  ['nothing', undefined, [{ type: 'missing', loc: ['body'], msg: 'Field required', input: null }]],
  ['a list', '[1]', [{ type: 'model_attributes_type', loc: ['body'], input: [1] }]],
  ['bad JSON', '{"a" 1}', [{ type: 'json_invalid', loc: ['body', 5], msg: 'JSON decode error', input: {} }]],
  ['no field', '{"count":1}', [{ type: 'missing', loc: ['body', 'task'], msg: 'Field required', input: { count: 1 } }]],
  [
    'unknown fields',
    '{"count":1,"task":{"name":"a","x":9007199254740993},"y":2}',
    [
      { type: 'extra_forbidden', loc: ['body', 'task', 'x'], msg: 'Extra inputs are not permitted' },
      { type: 'extra_forbidden', loc: ['body', 'y'], input: 2 },
    ],
  ],
  ['another type', '{"count":"1","task":{"name":"a"}}', [{ type: 'value_error', loc: ['body', 'count'], input: '1' }]],
])('a body with %s is refused as FastAPI does', async (_, body, detail) => {
  await using server = await startServer()
  const refused = await server.ask(body)
  expect(refused.status).toBe(422)
  expect(refused.headers.get('content-type')).toContain('application/json')
  expect(refused.cookie).toContain('Millrace___test=')
  expect(JSON.parse(refused.body)).toMatchObject({ detail })
})

test('other failures have the shapes of NeMo Gym, and tell nothing of our own faults', async () => {
  await using server = await startServer()
  expect(await server.ask('{"fail":"tool"}')).toMatchObject({ status: 500, body: '"[tool_failed] boom"' })
  const bug = await server.ask('{"fail":"bug"}')
  expect(typeof JSON.parse(bug.body)).toBe('string')
  expect(bug.body).not.toContain('secret')
  const full = await server.ask('{"fail":"status"}')
  expect(full).toMatchObject({ status: 503, body: '{"detail":"too much"}' })
  expect(full.headers.get('retry-after')).toBe('1')
  const other = await server.ask(undefined, {}, 'GET')
  expect(other).toMatchObject({ status: 405, body: '{"detail":"Method Not Allowed"}' })
  expect(other.headers.get('allow')).toBe('POST')
  expect(other.cookie).toContain('Millrace___test=')
  expect(await server.ask('a', { 'content-type': 'text/csv' })).toMatchObject({ status: 415 })
})

test('an error keeps its detail on the way between threads', () => {
  const error = MillraceError.fromWire(missing(['body', 'reward']).toWire())
  expect(error).toMatchObject({ code: 'usage', rawMessage: 'reward: Field required', data: { status: 422 } })
})
