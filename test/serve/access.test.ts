import { expect, test } from 'vitest'
import { RolloutServer } from '../../src/serve/index.ts'
import { echo, TestServer } from '../support/serve/test-server.ts'

test('with an access key, every route except the probes requires it', async () => {
  await using server = await TestServer.start(echo, { accessKey: 'sesame' })
  const task = { task: { word: 'a' } }
  expect((await server.post(task)).status).toBe(401)
  expect((await server.post(task, { authorization: 'Bearer sesam' })).body).toMatchObject({
    error: { code: 'unauthorized' },
  })
  expect((await server.get('/metrics')).status).toBe(401)
  expect((await server.get('/v1/rollouts')).status).toBe(401)
  expect(server.backend.requests).toEqual([])
  expect((await server.post(task, { authorization: 'Bearer sesame' })).status).toBe(200)
  expect((await server.get('/health')).body).toEqual({ status: 'ok' })
  expect((await server.get('/ready')).body).toEqual({ status: 'ready' })
})

test('without an access key, Host and Origin must be those of the server; with a key they may differ', async () => {
  await using server = await TestServer.start(echo)
  await using locked = await TestServer.start(echo, { accessKey: 'sesame' })
  const { port, host } = new URL(server.httpServer.url)
  const task = { task: { word: 'a' } }
  const refused = [
    { host: 'evil.example' },
    { host: `evil.example:${port}` },
    { host: 'localhost.' },
    { host: `localhost:${port}:1` },
    { host: 'evil-localhost' },
    { host: `localhost:${port}.evil.example` },
    { host: `192.168.1.4:${port}` },
    { host: '' },
    { origin: 'https://evil.example' },
    { origin: `http://evil.example:${port}` },
    { origin: 'http://localhost:3000' },
    { origin: `https://localhost:${port}` },
    { origin: `http://localhost:${port}.evil.example` },
    { origin: 'null' },
    { origin: '' },
  ]
  for (const headers of refused) {
    for (const path of ['/v1/rollouts', '/metrics', '/health', '/nowhere']) {
      const reply = await server.get(path, headers)
      expect(reply, JSON.stringify([path, headers])).toMatchObject({
        status: 403,
        body: { error: { code: 'forbidden' } },
      })
    }
    expect((await server.post(task, headers)).status).toBe(403)
    expect((await locked.post(task, { ...headers, authorization: 'Bearer sesame' })).status).toBe(200)
  }
  expect(server.backend.requests).toEqual([])
  expect((await server.get('/health', { host: 'evil.example' })).body).toEqual({
    error: {
      code: 'forbidden',
      message:
        'this server has no key, so it answers only requests whose Host is localhost, 127.0.0.1, [::1], not "evil.example"; use one of these, or give the server a key',
    },
  })
  const allowed = [{}, { origin: `http://${host}` }, { host: `LocalHost:${port}`, origin: `http://localhost:${port}` }]
  // As through a tunnel with another port.
  const forwarded = [{ host: 'localhost:9' }, { host: 'localhost:9', origin: 'http://localhost:9' }]
  for (const headers of [...allowed, ...forwarded, { host: `[::1]:${port}` }]) {
    expect((await server.post(task, headers)).status, JSON.stringify(headers)).toBe(200)
  }
})

test.each(['0.0.0.0', '::', '192.168.1.4'])('listening on %s requires an access key', async (host) => {
  await using server = await TestServer.start(echo)
  await expect(RolloutServer.open({ service: server.service, host, port: 0 })).rejects.toMatchObject({
    code: 'config_invalid',
    message: expect.stringContaining('MILLRACE_API_KEY') as string,
  })
})

test.each([
  ['127.0.0.1', 'with a line end, as a file has it\n', 'clients cannot send it'],
  ['0.0.0.0', 'sesame', 'fewer than 16 characters'],
])('on %s an ineffective or unusable access key is refused', async (host, accessKey, problem) => {
  await using server = await TestServer.start(echo)
  await expect(RolloutServer.open({ service: server.service, host, port: 0, accessKey })).rejects.toMatchObject({
    code: 'config_invalid',
    message: expect.stringContaining(problem) as string,
  })
})

test('a port that is taken is reported', async () => {
  await using server = await TestServer.start(echo)
  const port = Number(new URL(server.httpServer.url).port)
  await expect(RolloutServer.open({ service: server.service, port })).rejects.toMatchObject({
    code: 'config_invalid',
    message: expect.stringContaining('--port') as string,
  })
})

test('metrics describe the work of the server', async () => {
  await using server = await TestServer.start(echo)
  await server.lines({ tasks: [{ word: 'a' }, { word: 'b' }] })
  const text = await server.text('/metrics')
  expect(text).toContain('millrace_serve_requests_total 1')
  expect(text).toContain('millrace_serve_rollouts_total 2')
  expect(text).toContain('millrace_rollouts_total{environment="words",outcome="completed"} 2')
  expect(text).toMatch(/millrace_offload_wait_p99_seconds\{pool="codec"\} /)
})
