import { defineEnvironment, evaluate, standardRepairs, z, type Message } from 'millrace'
import { runScripted, ScriptedBackend, temporaryRuns } from 'millrace/testing'
import { describe, expect, test } from 'vitest'
import { RunReader } from '../../src/store/index.ts'

const adder = defineEnvironment({
  name: 'adder',
  task: z.object({}),
  tasks: () => [{}],
  prompt: () => [
    { role: 'system', content: 'You add.' },
    { role: 'user', content: 'What are 1 + 2 and 3 + 4?' },
  ],
  repair: standardRepairs,
  tools: {
    add: {
      description: 'Adds two numbers.',
      parameters: z.object({ a: z.number(), b: z.number() }),
      resume: 'reuse',
      run: ({ a, b }) => `${a + b}`,
    },
  },
  reward: ({ answer, toolRepairs }) => ({ '3 and 7': 1 })[answer.trim()] ?? toolRepairs,
})

/** Two calls in one reply as each format has them; the second one is sloppy: its numbers are texts. */
const twoCalls = {
  'mcp-xml':
    '<think>I might <use_mcp_tool><tool_name>add</tool_name><arguments>{}</arguments></use_mcp_tool></think>\n' +
    '<use_mcp_tool>\n<tool_name>add</tool_name>\n<arguments>\n{"a": 1, "b": 2}\n</arguments>\n</use_mcp_tool>\n' +
    '<use_mcp_tool>\n<tool_name>add</tool_name>\n<arguments>\n{"a": "3", "b": "4"}\n</arguments>\n</use_mcp_tool>',
  hermes:
    '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>\n' +
    '<tool_call>\n{"name": "add", "arguments": {"a": "3", "b": "4"}}\n</tool_call>',
  llama:
    '<|python_tag|>{"name": "add", "parameters": {"a": 1, "b": 2}}; {"name": "add", "parameters": {"a": "3", "b": "4"}}',
  pythonic: '[add(a=1, b=2), add(a="3", b="4")]',
} as const

const isAnswered = (messages: readonly Message[]): boolean => messages.some(({ role }) => role === 'assistant')

const formats = Object.entries(twoCalls) as [keyof typeof twoCalls, string][]

describe.each(formats)('calls in %s', (toolFormat, written) => {
  test('are run, answered in one user message, and recorded as sampled', async () => {
    const { records, backend } = await runScripted({
      environment: adder,
      toolFormat,
      script: ({ messages }) => (isAnswered(messages) ? '3 and 7' : written),
    })
    const [record] = records
    expect(record).toMatchObject({ outcome: 'completed', reward: 1, toolCalls: 2, toolErrors: 0, toolRepairs: 2 })
    const [system, user, reply, results, last] = record?.messages ?? []
    expect(system?.content).toMatch(/^You add\.\n\n/)
    expect(system?.content).toContain('Adds two numbers.')
    expect(user?.content).toBe('What are 1 + 2 and 3 + 4?')
    expect(reply).toEqual({ role: 'assistant', content: written })
    expect(results?.role).toBe('user')
    const parts = (results?.content ?? []) as readonly { text: string }[]
    const texts = parts.map(({ text }) => text)
    expect(texts).toEqual([expect.stringContaining('3'), expect.stringContaining('7')])
    expect(last?.content).toBe('3 and 7')
    expect(backend.requests.every(({ tools }) => tools.length === 0)).toBe(true)
  })

  test('are answered from the recording when a run is resumed', async () => {
    let runs = 0
    let hasStopped = false
    const environment = defineEnvironment({
      ...adder,
      task: z.object({}),
      tools: {
        add: {
          parameters: z.object({ a: z.number(), b: z.number() }),
          resume: 'reuse',
          run: ({ a, b }: { a: number; b: number }) => {
            runs += 1
            return `${a + b}`
          },
        },
      },
      reward: () => 1,
    })
    await using folder = await temporaryRuns()
    const options = { toolFormat, preflight: false, run: { root: folder.root }, environment }
    const model = { name: 'scripted', backends: [{ url: 'http://scripted.invalid' }], maxTries: 1 }
    const stopping = new ScriptedBackend(({ messages, signal }) => {
      if (!isAnswered(messages)) return written
      first.stop()
      hasStopped = true
      return new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)))
    })
    const first = evaluate({ ...options, model, backends: { scripted: [stopping] } })
    await first.summary()
    expect(hasStopped).toBe(true)
    expect(runs).toBe(2)
    const second = evaluate({ ...options, model, backends: { scripted: [new ScriptedBackend(() => '3 and 7')] } })
    const [record] = await Array.fromAsync(second)
    expect(record).toMatchObject({ outcome: 'completed', attempt: 1, toolCalls: 2 })
    expect(runs).toBe(2)
    using reader = RunReader.open((await second.summary()).folder)
    const answers = reader.nodes('0-0', 1).find(({ tools }) => tools)
    expect(answers?.tools).toMatchObject([
      { name: 'add', status: 'ok', parts: 1 },
      {
        name: 'add',
        status: 'ok',
        parts: 1,
        repairs: [
          { rule: 'coerce', at: 'a' },
          { rule: 'coerce', at: 'b' },
        ],
      },
    ])
  })
})

test('the model is told about an unknown tool in a text call', async () => {
  const { records } = await runScripted({
    environment: adder,
    toolFormat: 'hermes',
    script: ({ messages }) =>
      isAnswered(messages) ? 'sorry' : '<tool_call>\n{"name": "sub", "arguments": {}}\n</tool_call>',
  })
  const answer = records[0]?.messages.findLast(({ role }) => role === 'user')
  expect(answer?.content).toContain('"sub"')
  expect(records[0]).toMatchObject({ outcome: 'completed', toolErrors: 1 })
})

test('a notice says that the simulator writes no tool calls in text', async () => {
  await using runs = await temporaryRuns()
  const noticesWith = async (toolFormat: 'hermes' | 'native') => {
    const run = { root: runs.root, name: toolFormat }
    const evaluation = evaluate({ environment: adder, model: 'sim', toolFormat, run })
    const { notices } = await evaluation.started
    await evaluation.summary()
    return notices
  }
  expect(await noticesWith('hermes')).toEqual([expect.stringContaining('writes no tool calls in text (hermes)')])
  expect(await noticesWith('native')).toEqual([])
})

test('the sampled message and its tokens are kept unchanged, whatever is repaired', async () => {
  const sampled = {
    role: 'assistant' as const,
    content: '<tool_call>\n{"name": "add", "arguments": {"a": "1", "b": "2",}}\n</tool_call>',
  }
  const tokens = { ids: Int32Array.from([9, 8, 7, 7]), logprobs: Float32Array.from([-0.5, -0.25, -1, -2]) }
  const usage = { calls: 1, input: 10, cachedInput: 0, output: 4, reasoning: 0 }
  const backend = new ScriptedBackend(({ messages }) =>
    isAnswered(messages) ? '3' : { message: sampled, finishReason: 'stop', usage, tokens },
  )
  await using runs = await temporaryRuns()
  const evaluation = evaluate({
    environment: adder,
    toolFormat: 'hermes',
    captureTokens: true,
    model: { name: 'scripted', backends: [{ url: 'http://scripted.invalid' }] },
    backends: { scripted: [backend] },
    preflight: false,
    run: { root: runs.root },
  })
  const [record] = await Array.fromAsync(evaluation)
  expect(record).toMatchObject({ toolCalls: 1, toolErrors: 0, toolRepairs: 3 })
  using reader = RunReader.open((await evaluation.summary()).folder)
  const nodes = reader.nodes('0-0', 1)
  const reply = nodes.find((node) => node.sampled)
  expect(reply?.message).toEqual(sampled)
  expect(reply?.tokens).toMatchObject(tokens)
  expect(nodes.find(({ tools }) => tools)?.tools?.[0]?.repairs?.map(({ rule }) => rule)).toEqual([
    'json',
    'coerce',
    'coerce',
  ])
})
