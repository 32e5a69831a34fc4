import OpenAI from 'openai'
import { type Agent, defineEnvironment, parallel, refine, reflect, textOf, z, type Environment } from 'millrace'
import { calls, type Script, temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import { RolloutServer, RolloutService } from '../../src/serve/index.ts'
import { fixture } from '../support/cli/millrace-process.ts'
import { echo, HeldAnswers, TestServer, wordEnvironment } from '../support/serve/test-server.ts'

/** Its agent looks a number up, and says it. */
const lookup = defineEnvironment({
  name: 'lookup',
  task: z.object({}),
  tasks: () => [],
  prompt: () => 'Look it up.',
  tools: { find: { parameters: z.object({ name: z.string() }), run: ({ name }) => name.length } },
  reward: () => {
    throw new Error('nobody has asked for a reward')
  },
})

const looksUp: Script = ({ messages }) => {
  const found = messages.at(-1)
  return found?.role === 'tool' ? `It is ${String(found.content)}.` : calls({ find: { name: 'four' } })
}

function clientOf({ httpServer }: Pick<TestServer, 'httpServer'>, path = '/v1'): OpenAI {
  return new OpenAI({ baseURL: `${httpServer.url}${path}`, apiKey: 'none', maxRetries: 2 })
}

const question = { model: 'any', input: 'How long is it?' } as const

test('the output is all that the agent did, and no reward is computed', async () => {
  await using server = await TestServer.start(looksUp, { environment: lookup })
  for (const path of ['/v1', '/agents/lookup/v1']) {
    const response = await clientOf(server, path).responses.create({ ...question, instructions: 'Be brief.' })
    expect(response.output.map(({ type }) => type)).toEqual(['function_call', 'function_call_output', 'message'])
    expect(response).toMatchObject({ status: 'completed', output_text: 'It is 4.', instructions: 'Be brief.' })
    expect(response.usage?.total_tokens).toBeGreaterThan(0)
  }
  expect(server.backend.requests[0]?.messages).toEqual([
    { role: 'system', content: 'Be brief.' },
    { role: 'user', content: 'How long is it?' },
  ])
  const { body } = await server.get('/v1/rollouts/0-0')
  expect(body).toMatchObject({ outcome: 'completed', unscored: true, reward: null })
})

test('a conversation goes on with the output of the reply before', async () => {
  await using server = await TestServer.start(looksUp, { environment: lookup })
  const first = await clientOf(server).responses.create(question)
  const input = [{ role: 'user', content: question.input }, ...first.output, { role: 'user', content: 'And again?' }]
  const second = await clientOf(server).responses.create({
    ...question,
    input: input as OpenAI.Responses.ResponseInput,
  })
  expect(second.output_text).toBe('It is 4.')
  expect(server.backend.requests[2]?.messages.map(({ role }) => role)).toEqual([
    'user',
    'assistant',
    'tool',
    'assistant',
    'user',
  ])
})

test('a stream has each item once its turn is stored, and the whole response at the end', async () => {
  const second = Promise.withResolvers<void>()
  await using server = await TestServer.start(
    async (request) => {
      if (request.messages.at(-1)?.role === 'tool') await second.promise
      return await looksUp(request)
    },
    { environment: lookup },
  )
  const stream = await clientOf(server).responses.create({ ...question, stream: true })
  const types: string[] = []
  let last: OpenAI.Responses.ResponseStreamEvent | undefined
  for await (const event of stream) {
    types.push(event.type)
    expect(event.sequence_number).toBe(types.length - 1)
    // The second turn is not answered before the client has seen the call of the first one.
    if (event.type === 'response.function_call_arguments.done') second.resolve()
    last = event
  }
  expect(types.filter((type) => type === 'response.output_item.done')).toHaveLength(3)
  expect(types).toContain('response.output_text.delta')
  expect(last).toMatchObject({ type: 'response.completed', response: { status: 'completed' } })
  const { response } = last as OpenAI.Responses.ResponseCompletedEvent
  expect(response.output.map(({ type }) => type)).toEqual(['function_call', 'function_call_output', 'message'])
})

test('the SDK gathers the same response from a stream as a whole reply has', async () => {
  await using server = await TestServer.start(looksUp, { environment: lookup })
  const whole = await clientOf(server).responses.create(question)
  const gathered = await clientOf(server).responses.stream(question).finalResponse()
  const plain = (response: object): unknown =>
    JSON.parse(JSON.stringify(response, (name, value: unknown) => (/^(id|created_at)$/.test(name) ? undefined : value)))
  expect(plain(gathered)).toMatchObject({ ...(plain(whole) as object) })
})

test('rollouts on workers stream as well', async () => {
  await using runs = await temporaryRuns()
  await using service = await RolloutService.open({ environment: 'arithmetic', model: 'sim', workers: 1, run: runs })
  await using httpServer = await RolloutServer.open({ service, port: 0 })
  const task = { expression: '6 * 7', answer: 42 }
  const stream = await clientOf({ httpServer }).responses.create({
    model: 'sim',
    stream: true,
    ...({ task } as object),
  })
  const done: string[] = []
  for await (const event of stream) if (event.type === 'response.output_item.done') done.push(event.item.type)
  expect(done).toEqual(['function_call', 'function_call_output', 'message'])
})

test('an answer that no model has said alone is in the output', async () => {
  const environment: Environment = { ...lookup, agent: parallel({ attempts: 2 }) }
  await using server = await TestServer.start(looksUp, { environment })
  expect((await clientOf(server).responses.create(question)).output_text).toBe('It is 4.')
  const stream = clientOf(server).responses.stream(question)
  let text = ''
  stream.on('response.output_text.delta', ({ delta }) => (text += delta))
  expect((await stream.finalResponse()).output_text).toBe('It is 4.')
  expect(text).toBe('It is 4.')
})

const corrected = [
  ['refine', refine({ turns: 2 })],
  ['reflect', reflect({ turns: 2 })],
] as const satisfies readonly (readonly [string, Agent])[]

test.each(corrected)('the SDK reads what an agent is told between its answers (%s)', async (_name, agent) => {
  const environment: Environment = { ...lookup, agent, reward: ({ answer }) => answer === 'last' }
  const script: Script = ({ messages: [first, ...rest] }) => {
    if (first?.role === 'system' && textOf(first).startsWith('You review the work')) return 'Too short.'
    return rest.some(({ role }) => role === 'assistant') ? 'last' : 'first'
  }
  // Items with tokens, and long ones, are written on a thread.
  for (const options of [{}, { captureTokens: true }]) {
    await using server = await TestServer.start(script, { environment, ...options })
    const whole = await clientOf(server).responses.create(question)
    expect(whole.output_text).toBe('firstlast')
    expect(whole.output[1]).toMatchObject({
      role: 'user',
      content: [{ type: 'input_text', text: expect.any(String) }],
    })
    const stream = clientOf(server).responses.stream(question)
    const done: OpenAI.Responses.ResponseOutputItem[] = []
    stream.on('event', (event) => {
      if (event.type === 'response.output_item.done') done.push(event.item)
    })
    const { output, output_text: text } = await stream.finalResponse()
    expect([text, output.length]).toEqual(['firstlast', 3])
    expect(output).toMatchObject(done)
  }
})

test('a failed rollout is an error that clients do not repeat', async () => {
  let asked = 0
  await using server = await TestServer.start(
    () => {
      asked += 1
      throw new Error('no')
    },
    { environment: lookup, retries: 0 },
  )
  await expect(clientOf(server).responses.create(question)).rejects.toMatchObject({
    status: 500,
    error: { code: 'internal_error' },
  })
  expect(asked).toBe(1)
  const stream = await clientOf(server).responses.create({ ...question, stream: true })
  const reading = async (): Promise<void> => {
    for await (const _event of stream) void _event
  }
  await expect(reading()).rejects.toMatchObject({ code: 'internal_error' })
})

test('what cannot be asked of an agent is refused with the next step', async () => {
  await using server = await TestServer.start(echo)
  const refused = async (body: object): Promise<string> => {
    const reply = await server.send('POST', '/v1/responses', body)
    expect(reply.status).toBe(400)
    return (reply.body['error'] as { message: string }).message
  }
  expect(await refused({ input: 'a' })).toBe(
    'task: word: missing; expected string. The environment needs a task: send it as "task", beside "input"',
  )
  const tools = [{ type: 'function', name: 'mine', parameters: {} }]
  expect(await refused({ input: 'a', task: { word: 'a' }, tools })).toMatch(/has no tool mine: leave it out of tools/)
  expect(await refused({ input: 'a', previous_response_id: 'resp_1' })).toMatch(/previous_response_id/)
  expect(await refused({ input: 'a', stream: 'yes' })).toMatch(/stream is true or false/)
  expect(await refused({ input: 'a', max_ouput_tokens: 3 })).toBe(
    'OpenAI’s Responses has no field max_ouput_tokens; did you mean max_output_tokens? Fields of the backend go into metadata.extra_body',
  )
  expect(await refused({ input: 'a', foo: 1 })).toMatch(/has no field foo. Fields of the backend/)
  const wholeWord = { input: 'a', task: { word: 'a' }, user: 'me', metadata: { extra_body: '{"foo":1}' } }
  expect((await server.send('POST', '/v1/responses', wholeWord)).status).toBe(200)
  expect(server.backend.requests[0]?.sampling.extra).toMatchObject({ foo: 1 })
  expect(await refused([])).toMatch(/must be a JSON object/)
  const reply = await server.send('POST', '/agents/other/v1/responses', { input: 'a' })
  expect([reply.status, reply.body]).toMatchObject([404, { error: { message: /there is no agent other/ } }])
})

test('with NeMo Gym, errors have its detail and the reason that clients show', async () => {
  await using server = await TestServer.start(
    () => {
      throw new Error('no model today')
    },
    { nemoGym: { failures: 'class' }, retries: 0 },
  )
  for (const path of ['/v1', '/agents/words/v1']) {
    await expect(clientOf(server, path).responses.create(question)).rejects.toMatchObject({
      status: 422,
      message: expect.stringContaining('The environment needs a task: send it as "task"'),
      error: { type: 'invalid_request_error' },
    })
    const asked = { ...question, task: { word: 'apple' } }
    await expect(clientOf(server, path).responses.create(asked)).rejects.toMatchObject({
      status: 500,
      message: expect.stringContaining('no model today'),
    })
  }
  const { body } = await server.send('POST', '/v1/responses', { input: 'a' })
  expect(body).toMatchObject({ error: {}, detail: [{ type: 'value_error', loc: ['body'] }] })
})

test('without an input the conversation begins with the prompt of the task', async () => {
  await using server = await TestServer.start(echo)
  const { status, body } = await server.send('POST', '/v1/responses', { task: { word: 'apple' } })
  expect([status, body]).toMatchObject([200, { output: [{ content: [{ text: 'you said apple' }] }] }])
})

test.each([false, true])('a client that leaves cancels the rollout (streamed: %s)', async (isStreamed) => {
  const answers = new HeldAnswers()
  await using server = await TestServer.start(answers.script, { environment: wordEnvironment })
  const leaving = new AbortController()
  const body = { ...question, input: 'apple', task: { word: 'apple' }, stream: isStreamed }
  const reply = clientOf(server).responses.create(body as OpenAI.Responses.ResponseCreateParams, {
    signal: leaving.signal,
  })
  await expect.poll(() => answers.asked.size).toBe(1)
  if (isStreamed) await reply
  leaving.abort()
  await reply.catch(() => {})
  await expect.poll(async () => (await server.get('/v1/rollouts/0-0')).body['outcome']).toBe('cancelled')
})

test('environments from modules have the route as well', async () => {
  await using server = await TestServer.start(echo, { environment: fixture('counting.ts') })
  const { status } = await server.send('POST', '/agents/counting/v1/responses', { task: { left: 1, right: 2 } })
  expect(status).toBe(200)
})
