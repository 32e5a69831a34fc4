import { once } from 'node:events'
import { connect } from 'node:net'
import { RolloutService, type ServiceOptions } from 'millrace'
import { expect, test } from 'vitest'
import { echo, TestServer } from '../support/serve/test-server.ts'

const json = { 'content-type': 'application/json' }
const task = { word: 'a' }
const nested = `${'['.repeat(20_000)}${']'.repeat(20_000)}`

const mistakes: readonly [what: string, body: unknown, status: number, code: string, text: RegExp][] = [
  ['no JSON', '{"task":', 400, 'usage', /not JSON/],
  ['no object', '[1]', 400, 'usage', /expected object/],
  ['no task', {}, 400, 'usage', /"task" or "tasks"/],
  ['both', { task, tasks: [task] }, 400, 'usage', /"task" or "tasks"/],
  ['no tasks in the list', { tasks: [] }, 400, 'usage', /at least one/],
  ['too many tasks', { tasks: Array.from({ length: 101 }, () => task) }, 400, 'usage', /at most 100 tasks/],
  ['a field nobody knows', { task, temprature: 1 }, 400, 'usage', /temprature/],
  ['attempts of no number', { task, attempts: 'two' }, 400, 'usage', /attempts/],
  ['no attempts', { task, attempts: 0 }, 400, 'usage', /attempts/],
  ['a request id with spaces', { task, requestId: 'a b' }, 400, 'usage', /requestId/],
  ['sampling that does not fit', { task, sampling: { topP: 3 } }, 400, 'usage', /topP/],
  ['a form there is not', { task, include: 'everything' }, 400, 'usage', /include/],
  ['a task that does not fit', { task: { word: 1 } }, 400, 'task_invalid', /^task: word: expected string/],
  ['rows that do not fit', { tasks: [task, {}, task, 5] }, 400, 'task_invalid', /tasks\[1\].*tasks\[3\]/],
  ['a task that is too large', { task: { word: 'x'.repeat(3_000) } }, 400, 'task_invalid', /at most 2000/],
  ['one that has too many bytes', { task: { word: 'ü'.repeat(1_500) } }, 400, 'task_invalid', /has 30\d\d bytes/],
  ['more rollouts than may ever wait', { task, attempts: 51 }, 400, 'usage', /51 rollouts.*at most 50.*in parts/],
  ['more bytes than may ever wait', { task: { word: 'x'.repeat(1_900) }, attempts: 40 }, 400, 'usage', /at most 60000/],
  ['a task that is nested deeply', `{"task":${nested}}`, 400, 'usage', /at most 256 levels/],
  ['sampling that is', `{"task":{"word":"a"},"sampling":{"extra":{"x":${nested}}}}`, 400, 'usage', /256 levels/],
]

test('an invalid request is refused with the reason, and nothing of it is stored', async () => {
  await using server = await TestServer.start(echo, {
    bounds: { maxTasksPerRequest: 100, maxTaskBytes: 2_000, maxQueuedRollouts: 50, maxQueuedBytes: 60_000 },
  })
  for (const [what, body, status, code, text] of mistakes) {
    const reply = await server.post(body)
    expect(reply.status, what).toBe(status)
    expect(reply.body, what).toMatchObject({ error: { code, message: expect.stringMatching(text) as string } })
  }
  expect(server.backend.requests).toEqual([])
  expect((await server.get('/v1/rollouts')).body).toEqual({ rollouts: [] })
})

test('a large invalid body is refused in the same way', async () => {
  await using server = await TestServer.start(echo, { bounds: { maxBodyBytes: 400_000 } })
  const tasks = Array.from({ length: 9_000 }, (_, index) => (index === 8_000 ? { word: 5 } : { word: `word ${index}` }))
  const invalid = await server.post({ tasks })
  expect(invalid.status).toBe(400)
  expect(invalid.body).toMatchObject({ error: { code: 'task_invalid', data: { row: 8_000 } } })
  expect((await server.post(`${JSON.stringify({ tasks })}]`)).body).toMatchObject({ error: { code: 'usage' } })
  const large = await server.post({ tasks, requestId: 'x'.repeat(300_000) })
  expect(large).toMatchObject({ status: 413, body: { error: { code: 'too_large' } } })
  const deep = `${'['.repeat(100_000)}${']'.repeat(100_000)}`
  expect((await server.post(`{"tasks":[${deep}]}`)).body).toMatchObject({ error: { code: 'usage' } })
})

test('a body that is not UTF-8 is refused, small or large, and the error gives the byte', async () => {
  await using server = await TestServer.start(echo)
  for (const length of [1, 200_000]) {
    const before = `{"task":{"word":"${'x'.repeat(length)}`
    const body = Buffer.concat([Buffer.from(before), Buffer.from([0xe9]), Buffer.from('"}}')])
    const reply = await fetch(`${server.httpServer.url}/v1/rollouts`, { method: 'POST', headers: json, body })
    expect(reply.status).toBe(400)
    expect(await reply.json()).toMatchObject({
      error: { code: 'usage', message: expect.stringContaining(`not UTF-8 (byte ${before.length} begins`) as string },
    })
  }
  expect(server.backend.requests).toEqual([])
})

test('a large valid body is accepted', async () => {
  await using server = await TestServer.start(echo)
  const tasks = Array.from({ length: 500 }, (_, index) => ({ word: `${index} ${'x'.repeat(500)}` }))
  const lines = await server.lines({ tasks })
  expect(new Set(lines.map(({ id }) => id)).size).toBe(500)
  expect(lines.every(({ outcome }) => outcome === 'completed')).toBe(true)
})

test('requests without a route are refused', async () => {
  await using server = await TestServer.start(echo)
  const send = async (path: string, init: RequestInit): Promise<{ status: number; code: string }> => {
    const reply = await fetch(`${server.httpServer.url}${path}`, init)
    return { status: reply.status, code: ((await reply.json()) as { error: { code: string } }).error.code }
  }
  expect(await send('/v1/nothing', {})).toEqual({ status: 404, code: 'not_found' })
  expect(await send('/v1/rollouts/9-9', {})).toEqual({ status: 404, code: 'not_found' })
  expect(await send('/v1/rollouts/9-9', { method: 'DELETE' })).toEqual({ status: 404, code: 'not_found' })
  expect(await send('/v1/requests/nobody', {})).toEqual({ status: 404, code: 'not_found' })
  expect(await send(`/v1/requests/${'x'.repeat(1_000)}`, {})).toEqual({ status: 404, code: 'not_found' })
  for (const [path, allow] of [
    ['/v1/requests/nobody', 'DELETE, GET, HEAD'],
    ['/v1/rollouts', 'GET, HEAD, POST'],
    ['/health', 'GET, HEAD'],
  ] as const) {
    const reply = await fetch(`${server.httpServer.url}${path}`, { method: 'PATCH' })
    expect([reply.status, reply.headers.get('allow')]).toEqual([405, allow])
    expect(await reply.json()).toMatchObject({ error: { code: 'method_not_allowed' } })
  }
  expect(await send('/v1/requests/%zz', {})).toEqual({ status: 400, code: 'usage' })
  expect(await send('/v1/rollouts?limit=0', {})).toEqual({ status: 400, code: 'usage' })
  expect(await send('/v1/rollouts?cursor=here', {})).toEqual({ status: 400, code: 'usage' })
  const text = { method: 'POST', body: 'task=1', headers: { 'content-type': 'text/plain' } }
  expect(await send('/v1/rollouts', text)).toEqual({ status: 415, code: 'unsupported_type' })
  const packed = { method: 'POST', body: '{}', headers: { ...json, 'content-encoding': 'gzip' } }
  expect(await send('/v1/rollouts', packed)).toEqual({ status: 415, code: 'unsupported_type' })
})

test('a body may have no content-length, but is held to the size limit', async () => {
  await using server = await TestServer.start(echo, { bounds: { maxBodyBytes: 500_000 } })
  const send = async (text: string): Promise<number> => {
    const body = new Blob([text]).stream()
    const init = { method: 'POST', body, headers: json, duplex: 'half' } as RequestInit
    return (await fetch(`${server.httpServer.url}/v1/rollouts`, init)).status
  }
  expect(await send(JSON.stringify({ task }))).toBe(200)
  const tasks = Array.from({ length: 300 }, () => ({ word: 'w'.repeat(1_000) }))
  expect(await send(JSON.stringify({ tasks, detached: true }))).toBe(202)
  expect(await send(JSON.stringify({ tasks: [...tasks, ...tasks] }))).toBe(413)
})

test('a full queue refuses requests until there is room again', async () => {
  const release = Promise.withResolvers<string>()
  await using server = await TestServer.start(() => release.promise, {
    concurrency: 1,
    bounds: { maxQueuedRollouts: 3 },
  })
  const accepted = await server.post({ tasks: [task, task, task], requestId: 'first', detached: true })
  expect(accepted.status).toBe(202)
  // One of them runs by now; two wait, and another may.
  await expect.poll(() => server.service.status().running).toBe(1)
  const refused = await server.post({ tasks: [task, task] })
  expect(refused.status).toBe(429)
  expect(refused.headers['retry-after']).toBe('1')
  expect(refused.body).toMatchObject({ error: { code: 'overloaded', data: { queued: 2, maxQueued: 3 } } })
  release.resolve('done')
  await expect.poll(() => server.service.status().queued).toBe(0)
  expect((await server.post({ task })).status).toBe(200)
})

test('a request id may have 128 characters, and a DELETE may have a content type without a body', async () => {
  await using server = await TestServer.start(echo)
  const id = 'x'.repeat(128)
  expect((await server.post({ requestId: id, task })).status).toBe(200)
  expect((await server.get(`/v1/requests/${id}`)).body).toMatchObject({ id })
  const reply = await fetch(`${server.httpServer.url}/v1/requests/${id}`, { method: 'DELETE', headers: json })
  expect({ status: reply.status, body: await reply.json() }).toEqual({ status: 200, body: { id, cancelling: 0 } })
})

test('a running request is not forgotten, even if the limit of remembered requests is lower', async () => {
  const release = Promise.withResolvers<string>()
  await using server = await TestServer.start(() => release.promise, { bounds: { maxRememberedRequests: 1 } })
  for (const requestId of ['first', 'second']) await server.post({ requestId, task, detached: true })
  expect((await server.get('/v1/requests/first')).status).toBe(200)
  expect((await server.get('/v1/requests/second')).status).toBe(200)
  release.resolve('done')
})

test.each([
  [{ concurency: 3 }, '`concurency` is not known; did you mean `concurrency`?'],
  [{ limit: 3 }, '`limit` is not known; did you mean `limits`?'],
  [{ bounds: { maxTaskBytes: '3' } }, 'bounds.maxTaskBytes: expected number, got string'],
  [{ bounds: { maxTaskByte: 3 } }, 'bounds: `maxTaskByte` is not known; did you mean `maxTaskBytes`?'],
  [{ run: { folder: 'x' } }, 'run: `folder` is not known; there are root, name'],
])('invalid service options are refused: %j', async (misspelt: object, problem) => {
  const options: ServiceOptions = Object.assign({ environment: 'arithmetic', model: 'sim' }, misspelt)
  await expect(RolloutService.open(options)).rejects.toMatchObject({
    code: 'config_invalid',
    rawMessage: expect.stringContaining(problem),
  })
})

/** Sends a text as it is. */
async function raw(url: string, text: string): Promise<{ status: number; body: unknown }> {
  const { hostname, port } = new URL(url)
  const socket = connect(Number(port), hostname)
  socket.write(text)
  let answer = ''
  socket.setEncoding('utf8').on('data', (part: string) => (answer += part))
  await once(socket, 'end')
  socket.end()
  const [head = '', body = ''] = answer.split('\r\n\r\n')
  return { status: Number(head.split(' ')[1]), body: JSON.parse(body) }
}

const brokenRequests: readonly [what: string, text: string, status: number, code: string, message: RegExp][] = [
  ['no HTTP', 'is this a server?\r\n\r\n', 400, 'usage', /not an HTTP request/],
  ['a header without a name', 'GET /health HTTP/1.1\r\n: x\r\n\r\n', 400, 'usage', /not an HTTP request/],
  ['two lengths', 'POST / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n', 400, 'usage', /not an HTTP/],
  ['no Host', 'GET /health HTTP/1.1\r\nconnection: close\r\n\r\n', 400, 'usage', /Host is missing/],
  [
    'headers without end',
    `GET / HTTP/1.1\r\nx: ${'y'.repeat(17_000)}\r\n\r\n`,
    431,
    'too_large',
    /16384 bytes; send fewer$/,
  ],
  ['an expectation', 'GET / HTTP/1.1\r\nhost: x\r\nexpect: much\r\n\r\n', 417, 'usage', /100-continue/],
]

test('malformed HTTP is refused with the documented error format', async () => {
  await using server = await TestServer.start(echo)
  for (const [what, text, status, code, message] of brokenRequests) {
    const refusal = { error: { code, message: expect.stringMatching(message) as string } }
    expect(await raw(server.httpServer.url, text), what).toEqual({ status, body: refusal })
  }
})
