import { expect, test } from 'vitest'
import { HttpDoor } from '../../src/serve/index.ts'
import { echo, TestServer } from './_server.ts'

test('with a key, everything but the probes asks for it', async () => {
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

test.each(['0.0.0.0', '::', '192.168.1.4'])('%s is not listened on without a key', async (host) => {
  await using server = await TestServer.start(echo)
  await expect(HttpDoor.open({ service: server.service, host, port: 0 })).rejects.toMatchObject({
    code: 'config_invalid',
    message: expect.stringContaining('MILLRACE_API_KEY') as string,
  })
})

test.each([
  ['127.0.0.1', 'with a line end, as a file has it\n', 'no client can send it'],
  ['0.0.0.0', 'sesame', 'fewer than 16 characters'],
])('on %s a key is refused that locks nothing, or everybody out', async (host, accessKey, problem) => {
  await using server = await TestServer.start(echo)
  await expect(HttpDoor.open({ service: server.service, host, port: 0, accessKey })).rejects.toMatchObject({
    code: 'config_invalid',
    message: expect.stringContaining(problem) as string,
  })
})

test('a port that is taken is said to be', async () => {
  await using server = await TestServer.start(echo)
  const port = Number(new URL(server.door.url).port)
  await expect(HttpDoor.open({ service: server.service, port })).rejects.toMatchObject({
    code: 'config_invalid',
    message: expect.stringContaining('--port') as string,
  })
})

test('metrics name what the server does', async () => {
  await using server = await TestServer.start(echo)
  await server.lines({ tasks: [{ word: 'a' }, { word: 'b' }] })
  const text = await server.text('/metrics')
  expect(text).toContain('millrace_serve_requests_total 1')
  expect(text).toContain('millrace_serve_rollouts_total 2')
  expect(text).toContain('millrace_rollouts_total{environment="words",outcome="completed"} 2')
  expect(text).toMatch(/millrace_offload_wait_p99_seconds\{pool="codec"\} /)
})
