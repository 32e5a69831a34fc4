/** The endpoint through which programs ask the models of a rollout, spoken to by the vendors' own clients. */
import { once } from 'node:events'
import { get, type IncomingMessage, request as begin } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import Anthropic from '@anthropic-ai/sdk'
import { defineEnvironment, textOf, z, type Agent, type AgentContext } from 'millrace'
import { runScripted, type Script } from 'millrace/testing'
import OpenAI from 'openai'
import { expect, test } from 'vitest'
import { openModelEndpoint, type ModelEndpoint } from '../../src/endpoint/index.ts'
import { anyClient } from '../support/gateway/official-clients.ts'
import { activeResources, leftSince } from '../support/kit/active-resources.ts'

type Work = (endpoint: ModelEndpoint, context: AgentContext) => Promise<void>

function environmentWith(work: Work) {
  const agent: Agent = async (context) => {
    await using endpoint = await openModelEndpoint(context, { models: { 'small-one': 'scripted' } })
    await work(endpoint, context)
  }
  return defineEnvironment({
    name: 'spoken',
    task: z.object({}),
    tasks: () => [{}],
    prompt: () => 'not what the program says',
    agent: Object.assign(agent, { opensConversation: true } as const),
    reward: ({ answer }) => answer.length,
  })
}

const run = async (work: Work, script: Script = numbering, more: object = {}) => {
  const { records, backend } = await runScripted({ environment: environmentWith(work), script, retries: 0, ...more })
  const [record] = records
  if (!record) throw new Error('no rollout')
  return { record, backend }
}

/** Says how many messages it was sent. */
const numbering: Script = ({ messages }) => `reply ${messages.length}`

const user = (content: string) => ({ role: 'user' as const, content })
const assistant = (content: string) => ({ role: 'assistant' as const, content })

const clientsOf = ({ root, url, key }: ModelEndpoint) => ({
  openai: new OpenAI({ baseURL: url, apiKey: key, maxRetries: 0 }),
  anthropic: new Anthropic({ baseURL: root, authToken: key, apiKey: null, maxRetries: 0 }),
})

const post = async ({ url, key }: ModelEndpoint, body: object, path = '/chat/completions') => {
  const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' }
  const reply = await fetch(url + path, { method: 'POST', headers, body: JSON.stringify(body) })
  return { status: reply.status, text: await reply.text() }
}

/** Sends all of a body but its last character, and that when `rest` resolves. */
function slowPost({ root, key }: ModelEndpoint, body: string, rest: Promise<void>) {
  const headers = { authorization: `Bearer ${key}`, 'content-length': body.length, expect: '100-continue' }
  const asked = begin(`${root}/v1/chat/completions`, { method: 'POST', headers })
  const begun = once(asked, 'continue').then(() => asked.write(body.slice(0, -1)))
  const answered = once(asked, 'response') as Promise<[IncomingMessage]>
  asked.flushHeaders()
  const said = (async () => {
    await Promise.all([begun, rest])
    asked.end(body.slice(-1))
    const [response] = await answered
    return Buffer.concat(await response.toArray()).toString()
  })()
  return { begun, said }
}

const chat = async (endpoint: ModelEndpoint, messages: readonly object[], model = 'scripted') =>
  await post(endpoint, { model, messages })

test.each(['chat', 'responses', 'messages'] as const)(
  'the official client of %s gets whole and streamed replies, which are recorded',
  async (api) => {
    const { record } = await run(async (endpoint) => {
      const clients = clientsOf(endpoint)
      const asked = { model: 'scripted', text: 'What is 12 * 34?' }
      expect(await anyClient[api].whole(clients, asked)).toBe('reply 1')
      const pieces = await Array.fromAsync(anyClient[api].stream(clients, asked))
      expect(pieces.join('')).toBe('reply 1')
      const { data } = await clients.openai.models.list()
      expect(data.map(({ id }) => id)).toEqual(['scripted', 'small-one'])
    })
    // The streamed request is another one than the whole: it begins a conversation of its own.
    expect(record).toMatchObject({ outcome: 'completed', turns: 1, children: 1, answer: 'reply 1' })
    expect(record.messages).toEqual([user('What is 12 * 34?'), assistant('reply 1')])
  },
)

test('what continues the conversation is added to it; another model, or another history, begins a child', async () => {
  const { record } = await run(async (endpoint) => {
    await chat(endpoint, [user('a')])
    await chat(endpoint, [user('a'), assistant('reply 1'), user('b')])
    await chat(endpoint, [user('a'), assistant('reply 1'), user('b')], 'a model that nobody has')
    await chat(endpoint, [user('summary'), user('c')])
    await chat(endpoint, [user('summary'), user('c'), assistant('reply 2'), user('d')])
    await chat(endpoint, [user('a'), assistant('reply 1'), user('b'), assistant('reply 3'), user('e')])
  })
  expect(record.messages?.map(textOf)).toEqual(['a', 'reply 1', 'b', 'reply 3', 'e', 'reply 5'])
  expect(record).toMatchObject({ turns: 3, children: 2, usage: { calls: 6 } })
})

test('the time of a conversation is that of the rollout, however long it is idle', async () => {
  const { records } = await runScripted({
    environment: environmentWith(async (endpoint) => {
      await chat(endpoint, [user('a')])
      await chat(endpoint, [user('b')])
      // One rollout at a time has the model: the last one waits, which takes none of its time.
      await chat(endpoint, [user('a'), assistant('reply 1'), user('slow')])
      const late = await chat(endpoint, [user('b'), assistant('reply 1'), user('c')])
      expect(late).toMatchObject({ status: 200 })
    }),
    script: async (asked) => {
      if (asked.messages.at(-1)?.content === 'slow') await sleep(700)
      return numbering(asked)
    },
    attempts: 4,
    retries: 0,
    models: { scripted: { maxConcurrency: 1 } },
    limits: { timeoutMs: 2_000 },
  })
  const expected = { outcome: 'completed', children: 1, turns: 2 }
  expect(records).toMatchObject(records.map(() => expected))
})

test('an identical request gets the recorded reply, also while that is under way', async () => {
  const { backend, record } = await run(async (endpoint) => {
    const twice = await Promise.all([chat(endpoint, [user('a')]), chat(endpoint, [user('a')])])
    const again = await chat(endpoint, [user('a')])
    const said = [...twice, again].map(({ text }) => (JSON.parse(text) as OpenAI.ChatCompletion).choices[0]?.message)
    expect(said).toMatchObject(Array(3).fill(assistant('reply 1')))
  })
  expect(backend.requests).toHaveLength(1)
  expect(record.turns).toBe(1)
})

test('without the key of a running rollout nothing is answered', async () => {
  let ended: ModelEndpoint | undefined
  const before = activeResources()
  await run(async (endpoint) => {
    ended = endpoint
    const wrong = await chat({ ...endpoint, key: `${endpoint.key}x` }, [user('a')])
    expect(wrong).toMatchObject({ status: 401, text: expect.stringContaining('MILLRACE_KEY') })
    expect(await post(endpoint, {}, '/embeddings')).toMatchObject({ status: 404 })
    const choices = await post(endpoint, { model: 'scripted', messages: [user('a')], n: 2 })
    expect(choices).toMatchObject({ status: 400, text: expect.stringContaining('n') })
    await chat(endpoint, [user('a')])
  })
  if (!ended) throw new Error('the agent did not run')
  await expect(chat(ended, [user('a')])).rejects.toThrow('fetch failed')
  expect(await leftSince(before)).toEqual([])
})

test('a path that is no address is not found, and the connection is kept', async () => {
  const { record } = await run(async ({ root, key, ...rest }) => {
    const { port } = new URL(root)
    const [response] = (await once(
      get({ port, path: '//', headers: { authorization: `Bearer ${key}` } }),
      'response',
    )) as [IncomingMessage]
    expect(response.statusCode).toBe(404)
    expect(response.headers['keep-alive']).toBe('timeout=300')
    response.resume()
    await chat({ root, key, ...rest }, [user('a')])
  })
  expect(record).toMatchObject({ outcome: 'completed', answer: 'reply 1' })
})

test('a request that is still being read when the agent ends changes nothing', async () => {
  let late: Promise<string[]> | undefined
  const conversation = [user('a'), assistant('reply 1')]
  const opened = Promise.withResolvers<void>()
  const finish = Promise.withResolvers<void>()
  const leave = Promise.withResolvers<void>()
  // Another rollout keeps the server, and so the connections, for as long as the requests need.
  const other = run(async () => {
    opened.resolve()
    await leave.promise
  })
  await opened.promise
  const { record } = await run(async (endpoint) => {
    await chat(endpoint, [user('a')])
    const asked = ['b', 'c'].map((text) => {
      const messages = text === 'b' ? [...conversation, user(text)] : [user(text)]
      return slowPost(endpoint, JSON.stringify({ model: 'scripted', messages }), finish.promise)
    })
    await Promise.all(asked.map(({ begun }) => begun))
    late = Promise.all(asked.map(({ said }) => said))
  })
  finish.resolve()
  expect(await late).toEqual(Array(2).fill(expect.stringContaining('the agent has ended')))
  leave.resolve()
  await other
  expect(record).toMatchObject({ outcome: 'completed', children: 0, turns: 1, messages: conversation })
})

test('a failed model call is told to the program, which may go on', async () => {
  let calls = 0
  const { record } = await run(
    async (endpoint) => {
      expect(await chat(endpoint, [user('a')])).toMatchObject({ status: 500 })
      expect(endpoint.lastError).toMatchObject({ code: 'model_server_error' })
      expect(await chat(endpoint, [user('a')])).toMatchObject({ status: 200 })
      expect(endpoint.lastError).toBeUndefined()
    },
    (request) => {
      calls += 1
      if (calls === 1) throw new Error('down')
      return numbering(request)
    },
  )
  expect(record).toMatchObject({ outcome: 'completed', answer: 'reply 1' })
})

test('what would change the question is refused; what does not is left out, and noted', async () => {
  const { record, backend } = await run(async (endpoint) => {
    const asked = { model: 'scripted', input: 'a' }
    const respond = async (more: object) => await post(endpoint, { ...asked, ...more }, '/responses')
    expect(await respond({ previous_response_id: 'resp_1' })).toMatchObject({
      status: 400,
      text: expect.stringMatching(/send the whole conversation as input.*previous_response_id/),
    })
    expect(await respond({ conversation: 'conv_1' })).toMatchObject({ status: 400 })
    expect(await respond({ tools: [{ type: 'web_search' }], store: true })).toMatchObject({ status: 200 })
    const cached = { type: 'text', text: 'b', cache_control: { type: 'ephemeral' } }
    const messages = [{ role: 'user', content: [cached] }]
    await post(endpoint, { model: 'scripted', max_tokens: 5, messages, inference_geo: 'eu' }, '/messages')
  })
  expect(backend.requests).toHaveLength(2)
  expect(record.info).toEqual({ dropped: ['cache_control', 'inference_geo', 'tools[].type web_search'] })
})

test('a used-up budget ends the rollout, whatever the program does', async () => {
  const { record } = await run(
    async (endpoint) => {
      await chat(endpoint, [user('a')])
      await chat(endpoint, [user('b')])
      await expect(endpoint.fatal).rejects.toMatchObject({ code: 'budget_exhausted' })
      await endpoint.fatal
    },
    numbering,
    { limits: { maxTurns: 1 } },
  )
  expect(record).toMatchObject({ outcome: 'max_turns', truncated: true, answer: 'reply 1' })
})
