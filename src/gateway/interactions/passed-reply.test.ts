import { expect, test } from 'vitest'
import { ScriptedServer } from '../../inference/_testing/scripted-server.ts'
import { OpenGateway } from '../_testing/open-gateway.ts'

test.each([
  ['on the loop', 1_500],
  ['from a thread', 30_000],
])('a reply whose tokens are recorded comes as its backend wrote it, but for them: read %s', async (_where, count) => {
  const ids = Array.from({ length: count }, (_, index) => index)
  const before = '{ "id":"chatcmpl-1", "choices":[{"index":0, "message":{"role":"assistant","content":"h\\u00e9"},'
  const after =
    '"finish_reason":"stop"}],"usage":{"prompt_tokens":1e0,"completion_tokens":2}, "big":12345678901234567890}'
  const logprobs = '{"content":[{"token":"h","logprob":-0.50,"bytes":null},{"token":"e","logprob":-1,"bytes":null}]}'
  const tokens = `"logprobs":${logprobs}, "token_ids":[7, 8],`
  const text = `${before}${tokens}${after.slice(0, -1)},"prompt_token_ids":[${ids.join(', ')}]}`
  await using server = await ScriptedServer.start((response) =>
    response.writeHead(200, { 'content-type': 'application/json' }).end(text),
  )
  const models = [{ name: 'm', maxTries: 1, backends: [{ url: server.url }] }]
  await using open = await OpenGateway.open({ models, facts: { m: { capturesTokens: true } } })
  const { id, caller } = await open.session()
  const body = { model: 'm', messages: [{ role: 'user', content: 'hi' }] }
  const client = await open.ask(caller, body)
  expect(client.text).toBe(`${before}"logprobs":null,${after}`)
  const [, reply] = await open.nodes(id)
  expect(reply?.tokens).toEqual({
    promptIds: Int32Array.from(ids),
    ids: Int32Array.of(7, 8),
    logprobs: Float32Array.of(-0.5, -1),
  })
  // Who asks for them sees them.
  expect((await open.ask(caller, { ...body, logprobs: true, return_token_ids: true })).text).toBe(text)
})
