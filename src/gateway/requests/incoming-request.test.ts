import { expect, test } from 'vitest'
import { OpenGateway } from '../../../test/support/gateway/open-gateway.ts'
import { messagesReply } from '../../../test/support/inference/messages-server.ts'
import { ScriptedServer, sendJson } from '../../../test/support/inference/scripted-server.ts'

async function over(): Promise<{ server: ScriptedServer; open: OpenGateway } & AsyncDisposable> {
  await using ends = new AsyncDisposableStack()
  const server = ends.use(
    await ScriptedServer.start((response) => sendJson(response, messagesReply([{ type: 'text', text: 'hi' }]))),
  )
  const models = [{ name: 'm', api: 'messages' as const, maxTries: 1, backends: [{ url: server.url }] }]
  const open = ends.use(await OpenGateway.open({ models }))
  const moved = ends.move()
  return { server, open, [Symbol.asyncDispose]: () => moved.disposeAsync() }
}

test.each([
  ['chat', { messages: [{ role: 'user', content: 'hi' }], verbosity: 'medium', logit_bias: {} }],
  ['responses', { input: 'hi', text: { verbosity: 'medium' } }],
] as const)(
  'labels of a %s request are translated to Messages or left out; unknown fields are sent',
  async (api, asked) => {
    await using gateway = await over()
    const { caller } = await gateway.open.session()
    const body = {
      model: 'm',
      ...asked,
      user: 'u1',
      metadata: { run: 'a' },
      prompt_cache_key: 'k',
      service_tier: 'auto',
      presence_penalty: 0,
      top_k: 5,
    }
    expect((await gateway.open.ask(caller, body, { api })).status).toBe(200)
    const [sent] = gateway.server.requests
    expect(Object.keys(JSON.parse(sent?.body ?? '') as object).toSorted()).toEqual(
      ['max_tokens', 'messages', 'metadata', 'model', 'top_k'].toSorted(),
    )
    expect(JSON.parse(sent?.body ?? '')).toMatchObject({ metadata: { user_id: 'u1' }, top_k: 5 })
  },
)

test.each([
  [
    'chat',
    { messages: [{ role: 'user', content: 'hi' }], verbosity: 'low', presence_penalty: 1 },
    'verbosity, presence_penalty',
  ],
  ['chat', { messages: [{ role: 'user', content: 'hi' }], logit_bias: { 7: 1 } }, 'logit_bias'],
  ['responses', { input: 'hi', text: { verbosity: 'high' } }, 'text.verbosity'],
] as const)(
  'a field of a %s request that Messages does not support is refused by name: %j',
  async (api, asked, names) => {
    await using gateway = await over()
    const { caller } = await gateway.open.session()
    const refused = await gateway.open.ask(caller, { model: 'm', ...asked }, { api })
    expect(refused.status).toBe(400)
    expect(refused.text).toContain(`which does not support: ${names}.`)
    expect(gateway.server.requests).toEqual([])
  },
)
