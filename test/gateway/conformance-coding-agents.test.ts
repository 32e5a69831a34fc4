import { describe, expect, test } from 'vitest'
import type { ModelFacts } from '../../src/gateway/index.ts'
import type { Json, JsonObject } from '../../src/schema/index.ts'
import { SimulatorServer, type SimulatorServerOptions } from '../../src/simulator/index.ts'
import { readEvents, readObject } from '../support/gateway/stream-events.ts'
import { TestGateway, type Started } from '../support/gateway/test-gateway.ts'
import {
  emittedIn,
  emittedSample,
  expectMerged,
  mergedRowsOf,
  recordedSample,
  samplesOf,
} from '../support/gateway/emitted-tokens.ts'

/** Two steps, the first of which has two commands at once. */
const task = 'Run `make a` and `make b`\nRun `make test`'

/** The requests of a coding agent, shaped as the installed program sends them. */
interface CodingAgent {
  readonly path: string
  /** What was said before the first reply. */
  opening(asked: string): readonly JsonObject[]
  body(said: readonly Json[]): JsonObject
  /** The items of a reply, out of the whole document or out of the events of a stream. */
  reply(document: JsonObject): readonly JsonObject[]
  streamed(events: readonly JsonObject[]): readonly JsonObject[]
  /** The calls in a reply: the command of each, and its name as the client declared the tool. */
  calls(
    reply: readonly JsonObject[],
  ): readonly { readonly id: string; readonly tool: string; readonly command: string }[]
  /** The reply as it is sent back, with the results of its calls. */
  next(
    reply: readonly JsonObject[],
    results: readonly { readonly id: string; readonly output: string }[],
  ): readonly Json[]
}

const commandSchema = {
  type: 'object',
  properties: { command: { type: 'string' }, timeout: { type: 'number' } },
  required: ['command'],
}

/** Claude Code 2.1: a label in the system prompt, a system message among the others, marks for caching, edits of thinking. */
const claudeCode: CodingAgent = {
  path: '/v1/messages?beta=true',
  opening: (asked) => [
    {
      role: 'user',
      content: [
        { type: 'text', text: '<system-reminder>\nToday is Monday.\n</system-reminder>' },
        { type: 'text', text: asked, cache_control: { type: 'ephemeral' } },
      ],
    },
    { role: 'system', content: 'These agents can be asked: explorer.' },
  ],
  body: (said) => ({
    model: 'claude-of-some-version',
    messages: said,
    system: [
      { type: 'text', text: 'x-anthropic-billing-header: cc_version=2.1.0.abc; cc_entrypoint=sdk-cli;' },
      { type: 'text', text: 'You are an agent that works in a terminal.', cache_control: { type: 'ephemeral' } },
    ],
    tools: [
      { name: 'Bash', description: 'Runs a command.', input_schema: commandSchema },
      { name: 'Edit', description: 'Changes a file.', input_schema: { type: 'object' } },
      { name: 'ToolSearch', description: 'Finds more tools.', input_schema: { type: 'object' } },
      { name: 'WebFetch', description: 'Reads a page.', input_schema: { type: 'object' }, defer_loading: true },
      { type: 'web_search_20250305', name: 'web_search', max_uses: 8 },
    ],
    metadata: { user_id: '{"device_id":"d","session_id":"s"}' },
    max_tokens: 64_000,
    thinking: { type: 'adaptive' },
    context_management: { edits: [{ type: 'clear_thinking_20251015', keep: 'all' }] },
    output_config: { effort: 'high' },
  }),
  reply: ({ content }) => content as JsonObject[],
  streamed: (events) => {
    const blocks: Record<string, Json>[] = []
    let json = ''
    for (const { type, index, content_block: block, delta } of events) {
      if (type === 'content_block_start') blocks[Number(index)] = { ...(block as Record<string, Json>) }
      const open = blocks[Number(index)]
      if (!open) continue
      if (type === 'content_block_delta') {
        const { text = '', partial_json: piece = '', thinking = '' } = delta as Record<string, string>
        if ('text' in open) open['text'] = String(open['text']) + text
        if ('thinking' in open) open['thinking'] = String(open['thinking']) + thinking
        json += piece
      } else if (type === 'content_block_stop') {
        if (json !== '') open['input'] = readObject(json)
        json = ''
      }
    }
    return blocks
  },
  calls: (reply) =>
    reply.flatMap(({ type, id, name, input }) =>
      type === 'tool_use'
        ? [{ id: String(id), tool: String(name), command: String((input as JsonObject)['command']) }]
        : [],
    ),
  next: (reply, results) => [
    { role: 'assistant', content: reply },
    ...(results.length === 0
      ? []
      : [
          {
            role: 'user',
            content: results.map(({ id, output }, index) => ({
              type: 'tool_result',
              tool_use_id: id,
              content: output,
              // The mark for caching moves on from turn to turn.
              ...(index === results.length - 1 && { cache_control: { type: 'ephemeral' } }),
              is_error: index === 0,
            })),
          },
        ]),
  ],
}

const execFormat = { type: 'grammar', syntax: 'lark', definition: 'start: /(.|\\n)+/' }

/** Codex 0.169: tools in namespaces among the input, a freeform tool, developer messages, labels, encrypted reasoning. */
const codex: CodingAgent = {
  path: '/v1/responses',
  opening: (asked) => [
    {
      type: 'additional_tools',
      id: 'at_1',
      role: 'developer',
      tools: [
        {
          type: 'namespace',
          name: 'functions',
          description: '',
          tools: [
            { type: 'custom', name: 'exec', description: 'Runs a command.', format: execFormat },
            { type: 'function', name: 'wait', description: 'Waits.', strict: false, parameters: { type: 'object' } },
          ],
        },
      ],
    },
    message('developer', 'You are an agent that works in a terminal.'),
    message('developer', 'All commands are allowed.'),
    message('user', '<environment_context>bash</environment_context>'),
    message('user', asked),
    { type: 'configuration_update', reasoning: { effort: 'low' } },
  ],
  body: (said) => ({
    model: 'gpt-of-some-version',
    input: said,
    tools: [{ type: 'web_search', external_web_access: true }],
    tool_choice: 'auto',
    parallel_tool_calls: true,
    reasoning: { effort: 'low', context: 'all_turns' },
    store: false,
    include: ['reasoning.encrypted_content'],
    prompt_cache_key: 'k',
    text: { verbosity: 'low' },
    client_metadata: { session_id: 's' },
  }),
  reply: ({ output }) => output as JsonObject[],
  streamed: (events) =>
    events.filter(({ type }) => type === 'response.output_item.done').map(({ item }) => item as JsonObject),
  calls: (reply) =>
    reply.flatMap(({ type, call_id: id, namespace, name, input }) =>
      type === 'custom_tool_call'
        ? [{ id: String(id), tool: `${String(namespace)}.${String(name)}`, command: String(input) }]
        : [],
    ),
  next: (reply, results) => [
    ...reply,
    ...results.map(({ id, output }) => ({
      type: 'custom_tool_call_output',
      id: `ctco_${id}`,
      call_id: id,
      output: [
        { type: 'input_text', text: 'Script completed\n' },
        { type: 'input_text', text: output },
      ],
    })),
  ],
}

function message(role: string, text: string): JsonObject {
  return { type: 'message', id: `msg_${text.length}`, role, content: [{ type: 'input_text', text }] }
}

/** A simulator that imitates vLLM, and a gateway that has it answer to every name. */
async function startBoth(options: SimulatorServerOptions = {}, facts: ModelFacts = {}) {
  await using ends = new AsyncDisposableStack()
  const simulator = ends.use(
    await SimulatorServer.start({ imitate: 'vllm', recordEmitted: 10, reasoning: true, ...options }),
  )
  const gateway = ends.use(
    await TestGateway.start({
      models: [{ name: 'policy', backends: [{ url: simulator.url, engine: 'vllm' }] }],
      aliases: { '*': 'policy' },
      facts: { policy: facts },
    }),
  )
  const owned = ends.move()
  return { simulator, gateway, [Symbol.asyncDispose]: () => owned.disposeAsync() }
}

async function ask(
  gateway: TestGateway,
  agent: CodingAgent,
  asked: { session: Started; said: readonly Json[]; stream: boolean },
) {
  const { session, said, stream } = asked
  const headers = { 'anthropic-version': '2023-06-01' }
  const body = { ...agent.body(said), stream }
  const { status, text } = await gateway.ask(agent.path, { body, key: session.key, headers })
  expect(status, text).toBe(200)
  if (!stream) return agent.reply(readObject(text))
  return agent.streamed(readEvents(text).map(({ data }) => data as JsonObject))
}

const agents = { 'Claude Code': claudeCode, Codex: codex }
const tools = { 'Claude Code': 'Bash', Codex: 'functions.exec' }
const dropped = {
  'Claude Code': [
    'system[] x-anthropic-billing-header',
    'cache_control',
    'tools[].defer_loading',
    'context_management.edits[].type clear_thinking_20251015',
    'tools[].type web_search_20250305',
  ],
  Codex: ['input[].type configuration_update', 'reasoning.context', 'client_metadata', 'tools[].type web_search'],
}

/** The session is one conversation, and its row has the tokens that the backend saw and sampled. */
async function expectOneRow(
  { simulator, gateway }: { readonly simulator: SimulatorServer; readonly gateway: TestGateway },
  { id }: Started,
): Promise<void> {
  const emitted = await emittedIn(simulator, id)
  const rows = await samplesOf(gateway, id)
  expect(rows.map(recordedSample)).toEqual(emitted.map(emittedSample))
  const [row, ...others] = await mergedRowsOf(gateway, id)
  expect(others).toEqual([])
  expectMerged(row as NonNullable<typeof row>, emitted)
}

/** Names of what was left out of the first request of a session. */
async function droppedFirst(gateway: TestGateway, { id }: Started): Promise<unknown> {
  const { text } = await gateway.ask(`/v1/export?session=${id}`)
  return readObject(text.split('\n', 1)[0] ?? '')['dropped']
}

describe.each(['Claude Code', 'Codex'] as const)('requests of %s to a Chat model', (name) => {
  const agent = agents[name]

  test.each(['whole', 'streamed'] as const)('are answered %s, and recorded as one conversation', async (form) => {
    await using both = await startBoth()
    const { gateway } = both
    const session = await gateway.startSession()
    const said: Json[] = [...agent.opening(task)]
    const commands: string[][] = []
    for (let turn = 0; turn < 3; turn += 1) {
      const reply = await ask(gateway, agent, { session, said, stream: form === 'streamed' })
      const calls = agent.calls(reply)
      expect(calls.every(({ tool }) => tool === tools[name])).toBe(true)
      commands.push(calls.map(({ command }) => command))
      said.push(
        ...agent.next(
          reply,
          calls.map(({ id, command }) => ({ id, output: `output of ${command}` })),
        ),
      )
    }
    expect(commands).toEqual([['make a', 'make b'], ['make test'], []])

    await expectOneRow(both, session)
    expect(await droppedFirst(gateway, session)).toEqual(dropped[name])
  })

  test('are answered if their token limit does not fit into the context', async () => {
    await using both = await startBoth({ contextLength: 4000 })
    const { gateway } = both
    const session = await gateway.startSession()
    const limit = name === 'Codex' ? 'max_output_tokens' : 'max_tokens'
    const body = { ...agent.body(agent.opening(task)), [limit]: 4000 }
    const { status, text } = await gateway.ask(agent.path, { body, key: session.key })
    expect(status, text).toBe(200)
    expect(agent.calls(agent.reply(readObject(text)))).toHaveLength(2)
    expect(await droppedFirst(gateway, session)).toContain(limit)
    await expectOneRow(both, session)

    const long = agent.body(agent.opening(`${task}\n${'many words '.repeat(4000)}`))
    const refused = await gateway.ask(agent.path, { body: long, key: session.key })
    expect(refused.status).toBe(400)
    expect(refused.text).toContain('4000 tokens')
  })

  test('are sent once if their token limit exceeds the reported context length', async () => {
    await using both = await startBoth({ contextLength: 40_000 }, { contextLength: 40_000 })
    const { gateway, simulator } = both
    const session = await gateway.startSession()
    const said: Json[] = [...agent.opening(task)]
    const limit = name === 'Codex' ? 'max_output_tokens' : 'max_tokens'
    for (let turn = 0; turn < 3; turn += 1) {
      const body = { ...agent.body(said), [limit]: 128_000 }
      const { status, text } = await gateway.ask(agent.path, { body, key: session.key })
      expect(status, text).toBe(200)
      const reply = agent.reply(readObject(text))
      const results = agent.calls(reply).map(({ id }) => ({ id, output: 'done' }))
      said.push(...agent.next(reply, results))
      expect(simulator.stats.requests).toBe(turn + 1)
    }
    expect(await droppedFirst(gateway, session)).toContain(limit)
    await expectOneRow(both, session)
  })

  test('are refused with a hosted tool if hostedTools is refuse', async () => {
    await using gateway = await TestGateway.start({ aliases: { '*': 'sim' }, hostedTools: 'refuse' })
    const { status, text } = await gateway.ask(agent.path, { body: agent.body(agent.opening(task)) })
    expect(status).toBe(400)
    expect(text).toContain('web_search')
  })
})

function calledAs(block: JsonObject, input: JsonObject = {}): JsonObject {
  return { ...block, input }
}

test('calls that Claude Code rewrites match the record, and the tools that it loads are named in it', async () => {
  await using both = await startBoth()
  const { gateway, simulator } = both
  const session = await gateway.startSession()
  const edit = { file_path: 'a.txt', old_string: 'x', new_string: 'y  \n\tz \n' }
  const said: Json[] = [
    ...claudeCode.opening(
      [
        `Call \`Edit\` with \`${JSON.stringify(edit)}\` and \`Bash\` with \`{"command":"cd /work && make"}\``,
        'Call `ToolSearch` with `{"query":"select:WebFetch"}`',
        'Run `make test`',
      ].join('\n'),
    ),
  ]
  const inputs = [
    [{ replace_all: false, ...edit, new_string: 'y\n\tz\n' }, { command: 'make' }],
    [{ query: 'select:WebFetch' }],
    [{ command: 'make test' }],
  ]
  for (const changed of inputs) {
    const reply = await ask(gateway, claudeCode, { session, said, stream: true })
    const calls = reply.filter(({ type }) => type === 'tool_use')
    expect(calls).toHaveLength(changed.length)
    const content = reply.map((block) => (block['type'] === 'tool_use' ? calledAs(block, changed.shift()) : block))
    said.push({ role: 'assistant', content })
    const results = calls.map(({ id, name }) => ({
      type: 'tool_result',
      tool_use_id: id,
      content: name === 'ToolSearch' ? [{ type: 'tool_reference', tool_name: 'WebFetch' }] : 'done',
    }))
    said.push({ role: 'user', content: [...results, { type: 'text', text: 'Go on.' }] as Json })
  }
  await ask(gateway, claudeCode, { session, said, stream: true })
  await expectOneRow(both, session)
  const rows = await samplesOf(gateway, session.id)
  expect(JSON.stringify(rows.flatMap(({ messages }) => messages))).toContain('Tool loaded: WebFetch')
  expect(simulator.simulator.emitted().replies).toHaveLength(4)
})

/** An agent of Chat that has Claude Code's command tool. */
const chatAgent: Pick<CodingAgent, 'path' | 'body' | 'reply'> = {
  path: '/v1/chat/completions',
  body: (said) => ({
    model: 'any',
    messages: said,
    tools: [{ type: 'function', function: { name: 'Bash', parameters: commandSchema } }],
  }),
  reply: ({ choices }) => (choices as { message: JsonObject }[]).map(({ message: reply }) => reply),
}

test.each(['Chat', 'Messages'] as const)('the backend receives a call as the client of %s edited it', async (api) => {
  await using both = await startBoth({ reasoning: false })
  const { gateway, simulator } = both
  const session = await gateway.startSession()
  const agent = api === 'Chat' ? chatAgent : claudeCode
  const asked = { role: 'user', content: 'Call `Bash` with `{"command":"cd /prod && rm -rf x"}`\nRun `make`' }
  const first = await gateway.ask(agent.path, { body: agent.body([asked]), key: session.key })
  const reply = agent.reply(readObject(first.text))
  expect(JSON.stringify(reply)).toContain('cd /prod && rm')
  const edited = JSON.parse(JSON.stringify(reply).replace('/prod', '/staging')) as JsonObject[]
  const id = JSON.stringify(edited).match(/"id":"((?:call|toolu)[^"]*)"/)?.[1] ?? ''
  const next =
    api === 'Chat'
      ? [...edited, { role: 'tool', tool_call_id: id, content: 'done' }]
      : claudeCode.next(edited, [{ id, output: 'done' }])
  const second = await gateway.ask(agent.path, { body: agent.body([asked, ...next]), key: session.key })
  expect(second.status, second.text).toBe(200)
  const rows = await samplesOf(gateway, session.id)
  expect(rows.map(recordedSample)).toEqual((await emittedIn(simulator, session.id)).map(emittedSample))
  const [call] = rows.at(-1)?.messages.filter(({ role }) => role === 'assistant') ?? []
  expect(JSON.stringify(call)).toContain('cd /staging && rm')
})
