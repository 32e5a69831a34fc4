import { defineEnvironment, evaluate, z, type Message, type MessageNode } from 'millrace'
import { ScriptedBackend, temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import { RunReader } from '../../src/store/index.ts'

const lookUps = 6

const environment = defineEnvironment({
  name: 'forgetful',
  task: z.object({}),
  tasks: () => [{}],
  prompt: () => 'Look up everything.',
  tools: {
    look_up: {
      parameters: z.object({ n: z.number() }),
      resume: 'reuse',
      run: ({ n }) => `fact ${n}`,
    },
  },
  // Only the last two results are sent.
  contextPolicy: ({ messages, isToolResult, memory }) => {
    const results = messages.filter(isToolResult)
    const old = new Set(results.slice(0, -2))
    return messages.map((message) => {
      if (!old.has(message) || message.role !== 'tool') return message
      const known = memory.get(message.tool_call_id) as Message | undefined
      const stub = known ?? { ...message, content: 'omitted' }
      memory.set(message.tool_call_id, stub)
      return stub
    })
  },
  reward: () => 1,
})

const toolResults = (messages: readonly Message[]): unknown[] =>
  messages.filter(({ role }) => role === 'tool').map(({ content }) => content)

test('a policy changes only the messages that are sent; the record keeps all messages and what was sent', async () => {
  const backend = new ScriptedBackend(({ messages }) => {
    const done = messages.filter(({ role }) => role === 'tool').length
    if (done === lookUps) return 'done'
    const look = { name: 'look_up', arguments: JSON.stringify({ n: done }) }
    return { role: 'assistant', content: null, tool_calls: [{ id: `call_${done}`, type: 'function', function: look }] }
  })
  await using runs = await temporaryRuns()
  const evaluation = evaluate({
    environment,
    model: { name: 'scripted', backends: [{ url: 'http://scripted.invalid' }] },
    backends: { scripted: [backend] },
    preflight: false,
    run: { root: runs.root },
  })
  const [record] = await Array.fromAsync(evaluation)
  expect(record?.outcome).toBe('completed')
  expect(toolResults(backend.requests.at(-1)?.messages ?? [])).toEqual([
    ...Array.from({ length: lookUps - 2 }, () => 'omitted'),
    'fact 4',
    'fact 5',
  ])
  expect(toolResults(record?.messages ?? [])).toEqual(Array.from({ length: lookUps }, (_, n) => `fact ${n}`))

  // What was sent can be put together again from the record alone, for every turn.
  const { folder } = await evaluation.summary()
  using reader = RunReader.open(folder)
  const nodes = reader.nodes('0-0', 1)
  const copies = Array.from(reader.events('context'), ({ data }) => data as unknown as Copy)
  const repliesAt = nodes.filter(({ sampled }) => sampled).map(({ seq }) => seq)
  let sent: readonly Message[] = []
  const sentAt = repliesAt.map((reply, turn) => {
    const since = nodes.slice(turn === 0 ? 0 : repliesAt[turn - 1], reply).map(({ message }) => message)
    sent = [...sent, ...since]
    const copy = copies.find((each) => each.turn === turn)
    if (copy) sent = [...sent.slice(0, copy.same), ...copy.sent.flatMap((item) => messagesIn(item, nodes))]
    return sent
  })
  expect(sentAt).toEqual(backend.requests.map(({ messages }) => messages))
})

function messagesIn(item: Copy['sent'][number], nodes: readonly MessageNode[]): readonly Message[] {
  return Array.isArray(item) ? nodes.slice(item[0], item[1] + 1).map(({ message }) => message) : [item as Message]
}

interface Copy {
  readonly turn: number
  readonly same: number
  readonly sent: readonly (readonly [number, number] | Message)[]
}
