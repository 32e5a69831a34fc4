import { createServer, type IncomingHttpHeaders } from 'node:http'
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { defineEnvironment, evaluate, forkRollout, judge, replayRollout, rescoreRun, z } from 'millrace'
import { ScriptedBackend, temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import { openRun, scripted, storeRun } from './_stored.ts'

const base = { name: 'secretive', task: z.object({}), tasks: () => [{}], prompt: () => 'Go.' }

test('an option that was not stored is asked for by name, in all three', async () => {
  await using runs = await temporaryRuns()
  const environment = defineEnvironment({
    ...base,
    options: z.object({ apiKey: z.string(), level: z.number().default(1) }),
    reward: ({ options }) => options.apiKey.length,
  })
  await storeRun(runs.root, { environment, options: { apiKey: 'sk-0123456789' }, script: () => 'done' })
  using reader = openRun(runs.root)
  const fork = (options?: object) =>
    forkRollout(reader, {
      rollout: '0-0',
      turn: 0,
      environment,
      ...(options && { options: { ...options } }),
      preflight: false,
      model: scripted,
      backends: { scripted: [new ScriptedBackend(() => 'done')] },
      run: { root: runs.root, name: 'forked' },
    })
  for (const refused of [replayRollout(reader, '0-0', { environment }), rescoreRun(reader, { environment }), fork()]) {
    await expect(refused).rejects.toThrow('--env.apiKey=<value>')
  }
  const options = { apiKey: 'sk-0123456789' }
  expect(await replayRollout(reader, '0-0', { environment, options })).toMatchObject({ verdict: 'identical' })
  const [line] = await Array.fromAsync(await rescoreRun(reader, { environment, options }))
  expect(line).toMatchObject({ before: 13, after: 13 })
  expect(await Array.fromAsync(await fork(options))).toMatchObject([{ reward: 13 }])
})

test('what is left of a header is not sent', async () => {
  await using runs = await temporaryRuns()
  const seen: IncomingHttpHeaders[] = []
  const server = createServer((request, response) => {
    seen.push(request.headers)
    response.writeHead(400).end('{}')
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  try {
    const { port } = server.address() as AddressInfo
    const judged = (rubric: string) => defineEnvironment({ ...base, reward: judge({ rubric }) })
    await evaluate({
      environment: judged('Kind.'),
      preflight: false,
      model: {
        ...scripted,
        backends: [{ url: `http://127.0.0.1:${port}`, headers: { 'x-auth-token': 'secret-token', 'x-team': 'blue' } }],
      },
      backends: { scripted: [new ScriptedBackend(() => 'Score: 0.5')] },
      run: { root: runs.root, name: 'stored' },
    }).summary()
    using reader = openRun(runs.root)
    await Array.fromAsync(await rescoreRun(reader, { environment: judged('Strict.'), judge: 'live' }))
    expect(seen.map((headers) => [headers['x-team'], headers['x-auth-token']])).toEqual([['blue', undefined]])
  } finally {
    server.close()
    server.closeAllConnections()
  }
})
