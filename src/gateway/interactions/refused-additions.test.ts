import { expect, test } from 'vitest'
import { chatReply, ScriptedServer, sendJson } from '../../inference/_testing/scripted-server.ts'
import { OpenGateway } from '../_testing/open-gateway.ts'
import { beginEvents, doneEvent, tokenChunk } from '../_testing/token-chunks.ts'

const rejected = { error: { message: 'that is no temperature', type: 'invalid_request_error', param: 'temperature' } }

/** Answers, whole or as a stream, unless the temperature is too high. */
async function choosy(
  capturesTokens: boolean,
): Promise<{ server: ScriptedServer; open: OpenGateway } & AsyncDisposable> {
  await using ends = new AsyncDisposableStack()
  const server = ends.use(
    await ScriptedServer.start((response, { body }) => {
      const { temperature, stream } = JSON.parse(body) as { temperature?: number; stream?: boolean }
      if (temperature === 9) return sendJson(response, rejected, 400)
      if (!stream) return sendJson(response, chatReply('Hello'))
      beginEvents(response)
      response.end(tokenChunk('Hello', { finish: 'stop' }) + doneEvent)
    }),
  )
  const models = [{ name: 'm', maxTries: 1, backends: [{ url: server.url }] }]
  const open = ends.use(await OpenGateway.open({ models, facts: { m: { capturesTokens } } }))
  const moved = ends.move()
  return { server, open, [Symbol.asyncDispose]: () => moved.disposeAsync() }
}

const hot = { model: 'm', messages: [{ role: 'user', content: 'hi' }], temperature: 9 }

test('what was refused as the client said it is not asked again', async () => {
  await using setup = await choosy(false)
  const { caller } = await setup.open.session()
  expect((await setup.open.ask(caller, hot)).status).toBe(400)
  expect(setup.server.requests).toHaveLength(1)
})

test.each([
  ['with tokens', true, {}],
  ['as a stream with its usage', false, { stream: true }],
])(
  'what was asked for beyond that, %s, is asked without once; not where it was answered to before',
  async (...given) => {
    const [, capturesTokens, more] = given
    await using setup = await choosy(capturesTokens)
    const { caller } = await setup.open.session()
    expect((await setup.open.ask(caller, { ...hot, ...more })).status).toBe(400)
    expect(setup.server.requests).toHaveLength(2)
    expect((await setup.open.ask(caller, { ...hot, ...more, temperature: 1 })).status).toBe(200)
    expect((await setup.open.ask(caller, { ...hot, ...more })).status).toBe(400)
    expect(setup.server.requests).toHaveLength(4)
  },
)

/** As vLLM refuses it. */
const tooLarge =
  "'max_tokens' or 'max_completion_tokens' is too large: 128000. This model's maximum context length is 40960 tokens and your request has 13378 input tokens (128000 > 40960 - 13378)."

test.each([
  ['messages', { messages: [{ role: 'user', content: 'hi' }], max_tokens: 128_000 }, 200, 2],
  ['responses', { input: 'hi', max_output_tokens: 128_000 }, 200, 2],
  ['chat', { messages: [{ role: 'user', content: 'hi' }], max_tokens: 128_000 }, 400, 1],
] as const)('a limit of the reply that does not fit is left out of a translated request: %s', async (...given) => {
  const [api, asked, status, tries] = given
  await using server = await ScriptedServer.start((response, { body }) => {
    if (body.includes('128000')) sendJson(response, { error: { message: tooLarge, type: 'BadRequestError' } }, 400)
    else sendJson(response, chatReply('Hello'))
  })
  const models = [{ name: 'm', maxTries: 1, backends: [{ url: server.url }] }]
  await using open = await OpenGateway.open({ models })
  const { id, caller } = await open.session()
  const reply = await open.ask(caller, { model: 'm', ...asked }, { api })
  expect(reply.status, reply.text).toBe(status)
  expect(server.requests).toHaveLength(tries)
  const dropped = (await open.nodes(id)).flatMap(({ call }) => call?.dropped ?? [])
  expect(dropped).toEqual(api === 'chat' ? [] : [api === 'responses' ? 'max_output_tokens' : 'max_tokens'])
})
