import { expect, test } from 'vitest'
import { admin, OpenGateway } from '../support/gateway/open-gateway.ts'
import { chatReply, ScriptedServer, sendJson, type Handler } from '../support/inference/scripted-server.ts'

const hello = { model: 'm', messages: [{ role: 'user', content: 'hello' }] }

/** A server like vLLM, whose replies do not say the version of its weights. */
class VllmServer {
  version = '1'
  /** What it answers to the question for the version; undefined for its version. */
  refusal: { readonly status: number; readonly body: object } | undefined
  /** Called before the version is said. */
  onQuestion: () => void | Promise<void> = () => undefined
  /** Called before a reply is sent. */
  onReply: () => void | Promise<void> = () => undefined

  readonly handler: Handler = async (response, { path }) => {
    if (path === '/weight_info') {
      await this.onQuestion()
      const { status = 200, body = { weight_version: this.version } } = this.refusal ?? {}
      sendJson(response, body, status)
      return
    }
    await this.onReply()
    const logprobs = { content: [{ token: 'x', logprob: -1 }] }
    const message = { role: 'assistant', content: 'x' }
    const choices = [{ index: 0, message, finish_reason: 'stop', token_ids: [5], logprobs }]
    sendJson(response, chatReply('', { choices, prompt_token_ids: [7] }))
  }
}

function over(server: ScriptedServer): Promise<OpenGateway> {
  return OpenGateway.open({ models: [{ name: 'm', backends: [{ url: server.url, engine: 'vllm' }] }] })
}

const questions = ({ requests }: ScriptedServer): number =>
  requests.filter(({ path }) => path === '/weight_info').length

async function versionsOf(open: OpenGateway, id: string): Promise<(string | null)[]> {
  const nodes = await open.nodes(id)
  return nodes.flatMap(({ tokens }) => (tokens ? [tokens.version ?? null] : []))
}

/** Waits until the gateway knows the version of the weights. */
async function untilSeen(open: OpenGateway): Promise<void> {
  await expect
    .poll(async () => {
      const { id, caller } = await open.session()
      await open.ask(caller, hello)
      await open.gateway.endSession(admin, id)
      return await versionsOf(open, id)
    })
    .not.toEqual([null])
}

test('vLLM replies get the version reported before and after them, with one query for many replies', async () => {
  const vllm = new VllmServer()
  await using server = await ScriptedServer.start(vllm.handler)
  await using open = await over(server)
  await untilSeen(open)
  const { id, caller } = await open.session()
  const asked = questions(server)
  for (let turn = 0; turn < 20; turn += 1) await open.ask(caller, hello)
  expect(await versionsOf(open, id)).toEqual(Array.from({ length: 20 }, () => null))
  await open.gateway.endSession(admin, id)
  expect(await versionsOf(open, id)).toEqual(Array.from({ length: 20 }, () => '1'))
  expect(questions(server)).toBe(asked + 1)
})

test('a reply has no version if the version changed meanwhile or was not known before', async () => {
  const vllm = new VllmServer()
  await using server = await ScriptedServer.start(vllm.handler)
  await using open = await over(server)
  const first = await open.session()
  await open.ask(first.caller, hello)
  await open.gateway.endSession(admin, first.id)
  expect(await versionsOf(open, first.id)).toEqual([null])
  await untilSeen(open)
  const second = await open.session()
  vllm.onReply = () => {
    vllm.version = '2'
  }
  await open.ask(second.caller, hello)
  await open.gateway.endSession(admin, second.id)
  expect(await versionsOf(open, second.id)).toEqual([null])
  // The answer of then is what was seen before the next.
  const third = await open.session()
  await open.ask(third.caller, hello)
  await open.gateway.endSession(admin, third.id)
  expect(await versionsOf(open, third.id)).toEqual(['2'])
})

test.each([
  { status: 404, body: { detail: 'Not Found' } },
  { status: 200, body: { weight_version: null } },
])('a server without a version is queried once: %j', async (refusal) => {
  const vllm = new VllmServer()
  vllm.refusal = refusal
  await using server = await ScriptedServer.start(vllm.handler)
  await using open = await over(server)
  const { id, caller } = await open.session()
  await open.ask(caller, hello)
  await expect.poll(() => questions(server)).toBe(1)
  for (let turn = 0; turn < 4; turn += 1) expect((await open.ask(caller, hello)).status).toBe(200)
  await open.gateway.endSession(admin, id)
  expect(await versionsOf(open, id)).toEqual([null, null, null, null, null])
  expect(questions(server)).toBe(1)
})

test('a failing version query does not delay replies or the end of a session', async () => {
  const vllm = new VllmServer()
  await using server = await ScriptedServer.start(vllm.handler)
  await using open = await over(server)
  await untilSeen(open)
  const { id, caller } = await open.session()
  vllm.refusal = { status: 500, body: {} }
  await open.ask(caller, hello)
  await open.gateway.endSession(admin, id)
  expect(await versionsOf(open, id)).toEqual([null])
})

test('a slow version query does not delay the end of a session, and its answer is still recorded', async () => {
  const vllm = new VllmServer()
  await using server = await ScriptedServer.start(vllm.handler)
  await using open = await over(server)
  await untilSeen(open)
  const letGo = Promise.withResolvers<void>()
  vllm.onQuestion = () => letGo.promise
  const { id, caller } = await open.session()
  await open.ask(caller, hello)
  await open.gateway.endSession(admin, id)
  expect(await versionsOf(open, id)).toEqual([null])
  letGo.resolve()
  await expect.poll(() => versionsOf(open, id)).toEqual(['1'])
})

test('a temporarily refused version query is repeated', async () => {
  const vllm = new VllmServer()
  await using server = await ScriptedServer.start(vllm.handler)
  await using open = await over(server)
  await untilSeen(open)
  const before = await open.session()
  vllm.refusal = { status: 429, body: {} }
  await open.ask(before.caller, hello)
  await open.gateway.endSession(admin, before.id)
  expect(await versionsOf(open, before.id)).toEqual([null])
  vllm.refusal = undefined
  await untilSeen(open)
})

test('a gateway closes while a version query is running', async () => {
  const vllm = new VllmServer()
  await using server = await ScriptedServer.start(vllm.handler)
  const open = await over(server)
  await untilSeen(open)
  const { caller } = await open.session()
  await open.ask(caller, hello)
  await open[Symbol.asyncDispose]()
  expect(open.gateway.isClosed).toBe(true)
})
