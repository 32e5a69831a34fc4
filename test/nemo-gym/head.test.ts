import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { defineEnvironment, evaluate, nemoGym as gymEnvironment } from 'millrace'
import { ScriptedBackend, temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import { largeAggregateBody } from '../../scripts/interop/nemo-gym/aggregate-cases.ts'
import { aggregateMetricsReply } from '../../src/serve/compat/nemo-gym/metrics/aggregate-metrics.ts'
import { scripted } from '../support/replay/stored-runs.ts'
import { TestAgents } from '../support/serve/test-agents.ts'
import { echo, TestServer, wordEnvironment } from '../support/serve/test-server.ts'

const nemoGym = { failures: 'class' } as const

async function head(url: string): Promise<Record<string, unknown>> {
  const response = await fetch(`${url}/global_config_dict_yaml`)
  return JSON.parse((await response.json()) as string) as Record<string, unknown>
}

test('the head names the agent and its resources server, at the address that the client asked', async () => {
  await using server = await TestServer.start(echo, { nemoGym })
  const { port } = new URL(server.httpServer.url)
  const address = { host: 'localhost', port: Number(port) }
  expect(await head(`http://localhost:${port}`)).toEqual({
    head_server: address,
    words: {
      responses_api_agents: {
        millrace: { ...address, resources_server: { type: 'resources_servers', name: 'words_resources_server' } },
      },
    },
    words_resources_server: { resources_servers: { millrace: address } },
  })
  const { body } = await server.get('/server_instances')
  expect(body).toMatchObject([
    { process_name: 'words', server_type: 'responses_api_agent', name: 'millrace', url: server.httpServer.url },
    {
      process_name: 'words_resources_server',
      server_type: 'resources_server',
      name: 'millrace',
      url: server.httpServer.url,
    },
  ])
})

test('the rows of an environment run with the address of its server alone', async () => {
  await using server = await TestServer.start(echo, { nemoGym })
  await using runs = await temporaryRuns()
  const input = join(runs.root, 'data.jsonl')
  const lines = ['pear', 'plum'].map((word) => ({ responses_create_params: { input: 'pear' }, word }))
  await writeFile(input, lines.map((line) => JSON.stringify(line)).join('\n'))
  const evaluation = evaluate({
    ...(await gymEnvironment({ config: server.httpServer.url, input })),
    model: scripted,
    backends: { scripted: [new ScriptedBackend(echo)] },
    run: { root: join(runs.root, 'runs') },
  })
  const records = await Array.fromAsync(evaluation)
  const ended = records.toSorted((one, other) => one.task.index - other.task.index)
  expect(ended.map(({ reward, outcome }) => [reward, outcome])).toEqual([
    [1, 'completed'],
    [0, 'completed'],
  ])
})

test('the key of the server is asked for, and is not in the configuration', async () => {
  const accessKey = 'a-key-that-nobody-knows'
  await using server = await TestServer.start(echo, { nemoGym, accessKey })
  expect((await server.get('/global_config_dict_yaml')).status).toBe(401)
  const shown = await server.text('/global_config_dict_yaml', { authorization: `Bearer ${accessKey}` })
  expect(shown).toContain('words')
  expect(shown).not.toContain(accessKey)
})

test('without --nemo-gym there is no head', async () => {
  await using server = await TestServer.start(echo)
  expect((await server.get('/global_config_dict_yaml')).status).toBe(404)
  expect((await server.send('POST', '/aggregate_metrics', {})).status).toBe(404)
})

/** Two agents that differ in what their model says. */
async function startTwo(): Promise<TestAgents> {
  const environment = (name: string) => defineEnvironment({ ...wordEnvironment, name })
  return await TestAgents.startWith(
    { nemoGym },
    { environment: environment('words'), script: echo },
    { environment: environment('others'), script: () => 'nothing' },
  )
}

const params = { responses_create_params: { input: 'pear' }, word: 'pear' }

test('several agents have their own paths and cookies', async () => {
  await using server = await startTwo()
  const { port } = new URL(server.url)
  const agent = { responses_api_agents: { millrace: { host: '127.0.0.1', port: Number(port) } } }
  // A configuration has no paths, and their sessions need one.
  const { head_server: _head, ...blocks } = await head(server.url)
  expect(blocks).toEqual({ words: agent, others: agent })
  for (const [path, name, reward] of [
    ['/agents/words/run', 'words', 1],
    ['/agents/others/run', 'others', 0],
  ] as const) {
    const response = await server.post(path, params)
    expect(response.headers.get('set-cookie')).toContain(`Millrace___${name}=`)
    expect(await response.json()).toMatchObject({ reward })
  }
})

test('a row says which of several agents it is for', async () => {
  await using server = await startTwo()
  const run = async (agent: object): Promise<unknown> =>
    await (await server.post('/run', { ...params, ...agent })).json()
  expect(await run({ agent_ref: { name: 'words' } })).toMatchObject({ reward: 1 })
  expect(await run({ agent_ref: { name: 'others' } })).toMatchObject({ reward: 0 })
  for (const [agent, message] of [
    [{ agent_ref: { name: 'word' } }, 'Did you mean words?'],
    [{}, 'one of words, others'],
    [{ agent_ref: 7 }, 'one of words, others'],
  ] as const) {
    expect(await run(agent)).toMatchObject({
      _ng_failure_class: 'task_invalid',
      _ng_failure_terminal: true,
      error: { message: expect.stringContaining(message) },
    })
  }
})

test('a session of several environments needs the path of one', async () => {
  await using server = await startTwo()
  for (const path of ['/seed_session', '/verify', '/anything']) {
    const refused = await server.post(path, params)
    expect(refused.status).toBe(400)
    expect(refused.headers.get('set-cookie')).toContain('Millrace___')
    expect(await refused.json()).toEqual({
      detail: expect.stringContaining('put /agents/words or /agents/others before'),
    })
  }
  expect((await server.post('/agents/others/seed_session', params)).status).toBe(200)
})

test('metrics are counted here if they are small, and on a thread if not, with the same result', async () => {
  await using server = await TestServer.start(echo, { nemoGym })
  for (const body of [Buffer.from('{"verify_responses":[]}'), largeAggregateBody(500)]) {
    const response = await fetch(`${server.httpServer.url}/aggregate_metrics`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body,
    })
    expect(response.headers.get('set-cookie')).toContain('Millrace___words=')
    expect(await response.text()).toBe(aggregateMetricsReply(Buffer.from(body)))
  }
  const refused = await server.send('POST', '/aggregate_metrics', { verify_responses: 'x'.repeat(40_000) })
  expect(refused.status).toBe(422)
  expect(refused.body).toMatchObject({ detail: [{ type: 'list_type' }] })
})
