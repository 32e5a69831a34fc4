import { expect, test } from 'vitest'
import { largeAggregateBody } from '../../scripts/interop/nemo-gym/aggregate-cases.ts'
import { aggregateMetricsReply } from '../../src/serve/compat/nemo-gym/aggregate-metrics.ts'
import { RolloutServer, ServedAgents } from '../../src/serve/index.ts'
import { echo, TestServer } from '../support/serve/test-server.ts'

const nemoGym = { failures: 'class' } as const

async function head(url: string): Promise<Record<string, unknown>> {
  const response = await fetch(`${url}/global_config_dict_yaml`)
  return JSON.parse((await response.json()) as string) as Record<string, unknown>
}

test('the head names every agent, at the address that the client asked', async () => {
  await using server = await TestServer.start(echo, { nemoGym })
  const { port } = new URL(server.httpServer.url)
  const address = { host: 'localhost', port: Number(port) }
  expect(await head(`http://localhost:${port}`)).toEqual({
    head_server: address,
    words: { responses_api_agents: { millrace: address } },
  })
  const { body } = await server.get('/server_instances')
  expect(body).toMatchObject([
    { process_name: 'words', server_type: 'responses_api_agent', name: 'millrace', url: server.httpServer.url },
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

test('several agents have their own paths and cookies', async () => {
  await using server = await TestServer.start(echo)
  await using agents = ServedAgents.of(server.service)
  await using httpServer = await RolloutServer.open({ service: agents, port: 0, nemoGym })
  for (const path of ['', '/agents/words']) {
    const response = await fetch(`${httpServer.url}${path}/aggregate_metrics`)
    expect(response.status).toBe(405)
    expect(response.headers.get('set-cookie')).toMatch(/^Millrace___words=/)
  }
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
