import { createServer, type IncomingHttpHeaders } from 'node:http'
import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { defineEnvironment, evaluate, forkRollout, judge, replayRollout, rescoreRun, z } from 'millrace'
import { ScriptedBackend, temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import { openRun, scripted, storeRun } from '../support/replay/stored-runs.ts'

const base = { name: 'secretive', task: z.object({}), tasks: () => [{}], prompt: () => 'Go.' }

test('replay, rescore and fork ask for a redacted option by name', async () => {
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

test('redacted headers and url parts are not sent', async () => {
  await using runs = await temporaryRuns()
  const seen: { readonly headers: IncomingHttpHeaders; readonly url: string | undefined }[] = []
  const server = createServer((request, response) => {
    seen.push({ headers: request.headers, url: request.url })
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
        backends: [
          {
            url: `http://127.0.0.1:${port}/v1?key=sk-verysecret123&api-version=7`,
            headers: { 'x-auth-token': 'secret-token', 'x-team': 'blue' },
          },
        ],
      },
      backends: { scripted: [new ScriptedBackend(() => 'Score: 0.5')] },
      run: { root: runs.root, name: 'stored' },
    }).summary()
    using reader = openRun(runs.root)
    expect(await readFile(join(reader.folder, 'run.json'), 'utf8')).not.toMatch(/sk-verysecret123|secret-token|blue/)
    await Array.fromAsync(await rescoreRun(reader, { environment: judged('Strict.'), judge: 'live' }))
    expect(seen).toMatchObject([{ url: '/v1/chat/completions?api-version=7' }])
    for (const name of ['x-auth-token', 'x-team']) expect(seen[0]?.headers).not.toHaveProperty(name)
  } finally {
    server.close()
    server.closeAllConnections()
  }
})

test('the prompt of a fork is stored unredacted, because its replay needs it', async () => {
  await using runs = await temporaryRuns()
  const environment = defineEnvironment({ ...base, reward: () => 1 })
  await storeRun(runs.root, { environment, script: () => 'done' })
  using reader = openRun(runs.root)
  const prompt = 'Read https://host/page?topic=tides.'
  const backends = { scripted: [new ScriptedBackend(() => 'done')] }
  const run = { root: runs.root, name: 'forked' }
  const options = { rollout: '0-0', turn: 0, environment, prompt, preflight: false, model: scripted, backends, run }
  await (await forkRollout(reader, options)).summary()
  using forked = openRun(runs.root, 'forked')
  expect(await replayRollout(forked, '0-0', { environment })).toMatchObject({ verdict: 'identical' })
})
