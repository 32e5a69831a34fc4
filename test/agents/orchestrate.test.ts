import {
  defineEnvironment,
  MillraceError,
  orchestrate,
  plan,
  replayRun,
  textOf,
  toolLoop,
  z,
  type Agent,
  type Message,
  type SubAgent,
} from 'millrace'
import { calls, runScripted, ScriptedBackend, temporaryRuns, type Script } from 'millrace/testing'
import { describe, expect, test } from 'vitest'
import { cutAnywhere } from '../support/agents/cut-anywhere.ts'
import { openRun, storeRun } from '../support/replay/stored-runs.ts'

function environmentWith(agent: Agent, more: object = {}) {
  return defineEnvironment({
    name: 'library',
    task: z.object({}),
    tasks: () => [{}],
    setup: () => ({ reads: 0 }),
    prompt: () => 'Which is the oldest book?',
    tools: {
      read: {
        parameters: z.object({ book: z.string() }),
        resume: 'rerun',
        run: ({ book }, { state }) => `${book} is no. ${(state.reads += 1)}`,
      },
      burn: { parameters: z.object({}), run: () => 'gone' },
    },
    agent,
    reward: ({ state, answer }) => state.reads / 10 + (answer.startsWith('done') ? 1 : 0),
    ...more,
  })
}

const reader: SubAgent = { description: 'Reads a book.', instructions: 'You are a reader.', tools: ['read'] }
const last = (messages: readonly Message[]): string => textOf(messages.at(-1) as Message)
const isTold = (messages: readonly Message[]): boolean => messages.at(-1)?.role === 'tool'
const isReader = ([first]: readonly Message[]): boolean => textOf(first as Message) === 'You are a reader.'
const results = (messages: readonly Message[]): string[] =>
  messages.filter(({ role }) => role === 'tool').map((message) => textOf(message))

/** The orchestrator asks two readers at once, who read what they are asked for, and then says what it was told. */
const twoReaders: Script = ({ messages }) => {
  if (isReader(messages)) {
    return isTold(messages)
      ? `<think>hm</think>${last(messages)}`
      : calls({ read: { book: textOf(messages[1] as Message) } })
  }
  if (isTold(messages)) return `done: ${results(messages).join(', ')}`
  return calls({ reader: { task: 'Emma' } }, { reader: { task: 'Faust' } })
}

describe('orchestrate', () => {
  test('calls agents as tools: each is a child under its call, with its own instructions and tools', async () => {
    const environment = environmentWith(orchestrate({ agents: { reader } }))
    const { records, backend } = await runScripted({ environment, script: twoReaders })
    expect(records).toMatchObject([
      {
        outcome: 'completed',
        reward: 1.2,
        answer: 'done: Emma is no. 1, Faust is no. 2',
        turns: 2,
        children: 2,
        toolCalls: 4,
      },
    ])
    const [asked, ...below] = backend.requests.map(({ messages, tools }) => ({
      prompt: messages.slice(0, 2).map(textOf),
      tools: tools.map((tool) => tool.function.name),
    }))
    expect(asked).toEqual({ prompt: ['Which is the oldest book?'], tools: ['read', 'burn', 'reader'] })
    expect(below).toContainEqual({ prompt: ['You are a reader.', 'Emma'], tools: ['read'] })
    const declared = backend.requests[0]?.tools.find((tool) => tool.function.name === 'reader')?.function
    expect(declared).toMatchObject({ description: 'Reads a book.', parameters: { required: ['task'] } })
  })

  test('an agent may have a model and agents of its own, and the orchestrator fewer tools', async () => {
    const grader = new ScriptedBackend(({ messages, tools }) => {
      const names = tools.map((tool) => tool.function.name).join()
      return isTold(messages) ? `${names}: ${last(messages)}` : calls({ reader: { task: 'Emma' } })
    })
    const editor: SubAgent = {
      description: 'Edits.',
      model: 'grader',
      agent: orchestrate({ agents: { reader }, tools: ['burn'] }),
    }
    const environment = environmentWith(orchestrate({ agents: { editor }, tools: [] }))
    const { records, backend } = await runScripted({
      environment,
      script: ({ messages, tools, ...request }) => {
        if (isReader(messages)) return twoReaders({ messages, tools, ...request })
        return isTold(messages) ? `done: ${last(messages)}` : calls({ editor: { task: 'Have Emma read.' } })
      },
      models: { scripted: {}, grader: {} },
      backends: { grader: [grader] },
    })
    expect(records).toMatchObject([
      { answer: 'done: burn,reader: Emma is no. 1', children: 2, toolCalls: 3, reward: 1.1 },
    ])
    expect(backend.requests[0]?.tools.map((tool) => tool.function.name)).toEqual(['editor'])
    expect(grader.requests).toHaveLength(2)
  })

  test('an agent that uses up its share ends its call with an error, and the orchestrator goes on', async () => {
    const greedy: Agent = async ({ turn }) => {
      for (;;) await turn()
    }
    const agents = { reader: { ...reader, agent: greedy, share: 0.1 }, writer: { description: 'Writes.' } }
    const { records } = await runScripted({
      environment: environmentWith(orchestrate({ agents })),
      script: ({ messages }) => {
        if (last(messages) === 'Write.') return '<think>nothing</think>'
        if (isReader(messages)) return 'I see'
        if (isTold(messages)) return `done: ${results(messages).join(' | ')}`
        return calls({ reader: { task: 'Emma' }, writer: { task: 'Write.' } })
      },
    })
    const said =
      'done: Error: the agent reader ended as max_turns. Its last words:\nI see | Error: the agent writer ended as completed without an answer.'
    expect(records).toMatchObject([{ outcome: 'completed', answer: said, toolErrors: 2 }])
  })

  const down: Script = () => {
    throw new MillraceError('model_server_error', 'the server is down')
  }
  const throwing: Agent = async ({ turn }) => {
    await turn()
    throw new Error('lost its glasses')
  }
  const patient: Agent = async (context) => {
    for (let tries = 0; tries < 3; tries += 1) await toolLoop()(context).catch(() => {})
  }
  test.each<[outcome: string, message: string, reads: Script, agent: Agent | undefined, lead: Agent]>([
    ['model_error', 'the server is down', down, undefined, toolLoop()],
    ['model_error', 'the server is down', down, undefined, patient],
    ['agent_error', 'lost its glasses', () => 'I see', throwing, toolLoop()],
  ])('an agent that ends as %s ends the rollout so: it is not scored without it', async (outcome, ...rest) => {
    const [message, reads, agent, lead] = rest
    await using runs = await temporaryRuns()
    const agents = { reader: { ...reader, ...(agent && { agent }) }, writer: { description: 'Writes.' } }
    const environment = environmentWith(orchestrate({ agents, agent: lead }))
    const script: Script = (request) => {
      const { messages, signal } = request
      if (isReader(messages)) return reads(request)
      if (isTold(messages)) return 'done'
      if (last(messages) !== 'Write.') return calls({ reader: { task: 'Emma' }, writer: { task: 'Write.' } })
      return new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)))
    }
    await storeRun(runs.root, { environment, script })
    using stored = openRun(runs.root)
    const record = stored.rollout('0-0')
    expect(record).toMatchObject({ outcome, reward: null, error: { message: expect.stringContaining(message) } })
    expect(record?.messages.map(({ role }) => role)).toEqual(['user', 'assistant'])
    const [report] = await Array.fromAsync(replayRun(stored, { environment }))
    expect(report).toMatchObject({ verdict: 'identical' })
  })

  test('each call gets a share of the turns and tokens that its caller has left', async () => {
    const lefts: string[] = []
    const greedy: Agent = async ({ turn, budget }) => {
      lefts.push(`${budget.turnsLeft} turns, ${budget.tokensLeft} tokens`)
      for (;;) await turn()
    }
    const agents = { reader: { ...reader, agent: greedy }, writer: { ...reader, agent: greedy, share: 0.1 } }
    const { records } = await runScripted({
      environment: environmentWith(orchestrate({ agents }), { limits: { maxTurns: 31, maxTokens: 901 } }),
      script: ({ messages }) => {
        const usage = { calls: 1, input: 1, cachedInput: 0, output: 1, reasoning: 0 }
        if (isReader(messages)) return { message: { role: 'assistant', content: 'hm' }, usage }
        if (isTold(messages)) return { message: { role: 'assistant', content: 'done' }, usage }
        return { message: calls({ reader: { task: 'Emma' }, writer: { task: 'Emma' } }), usage }
      },
    })
    // A third for each of two agents and their caller, of what is left after the first turn.
    expect(lefts).toEqual(['10 turns, 300 tokens', '3 turns, 90 tokens'])
    expect(records).toMatchObject([{ outcome: 'completed', answer: 'done', usage: { calls: 15 } }])
  })

  test('no more than atOnce agents work at the same time; the others wait', async () => {
    let working = 0
    let most = 0
    const counting: Agent = async ({ turn }) => {
      working += 1
      most = Math.max(most, working)
      await turn()
      await turn()
      working -= 1
    }
    const agents = { reader: { ...reader, agent: counting } }
    const { records } = await runScripted({
      environment: environmentWith(orchestrate({ agents, atOnce: 2 })),
      script: ({ messages }) => {
        if (isReader(messages)) return 'read'
        const tasks = ['a', 'b', 'c', 'd', 'e'].map((task) => ({ reader: { task } }))
        return isTold(messages) ? `done: ${results(messages).length}` : calls(...tasks)
      },
    })
    expect(records).toMatchObject([{ answer: 'done: 5', children: 5 }])
    expect(most).toBe(2)
  })

  test('an agent that has itself among its agents is offered none on the last level', async () => {
    const depths: number[] = []
    const lead: Agent = async (context) => {
      depths.push(context.depth)
      await orchestrate({ agents: { lead: { description: 'Leads.', agent: lead } }, tools: [], maxDepth: 2 })(context)
    }
    const { records } = await runScripted({
      environment: environmentWith(lead),
      script: ({ messages, tools }) => {
        if (isTold(messages)) return `${last(messages)} and I`
        return tools.length === 0 ? 'I' : calls({ lead: { task: 'Lead.' } })
      },
    })
    expect(depths).toEqual([0, 1, 2])
    expect(records).toMatchObject([{ answer: 'I and I and I', children: 2 }])
  })

  test('another agent may do the orchestration', async () => {
    const { records } = await runScripted({
      environment: environmentWith(orchestrate({ agents: { reader }, agent: plan() })),
      script: (request) => {
        const { messages } = request
        if (isReader(messages)) return twoReaders(request)
        if (!last(messages).includes('Reply with the plan')) return `done: ${last(messages)}`
        return '[{"id": "E1", "tool": "reader", "arguments": {"task": "Emma"}}]'
      },
    })
    expect(records).toMatchObject([{ answer: 'done: Emma is no. 1', children: 2, toolCalls: 2 }])
  })

  test('wherever it is cut off, it goes on as if it had not been, and replays', async () => {
    const failing: Agent = async ({ turn }) => {
      for (;;) await turn()
    }
    const agents = { reader, blind: { description: 'Uses up its share.', agent: failing, share: 0.01 } }
    const environment = environmentWith(orchestrate({ agents }))
    const script: Script = (request) => {
      const { messages } = request
      if (isReader(messages)) return twoReaders(request)
      if (last(messages) === 'Look.') return 'I cannot'
      const told = results(messages)
      if (told.length === 4) return `done: ${told.join(', ')}`
      return calls({ reader: { task: `Emma ${told.length}` } }, { blind: { task: 'Look.' } })
    }
    const [whole, ...cut] = await cutAnywhere(environment, script)
    expect(whole).toMatchObject({ record: { outcome: 'completed', reward: 1.2, children: 4 }, replay: ['identical'] })
    expect(cut).toHaveLength(9)
    for (const run of cut) expect(run, `cut at ${run.cutAt}`).toEqual({ ...whole, cutAt: run.cutAt })
  })

  test('with calls written as text it says what to leave out', async () => {
    const environment = environmentWith(orchestrate({ agents: { reader } }), { toolFormat: 'hermes' })
    const { records } = await runScripted({ environment, script: () => 'x', retries: 0 })
    expect(records).toMatchObject([
      { outcome: 'agent_error', error: { message: expect.stringContaining('leave out the tool format') } },
    ])
  })

  test.each<[object, string]>([
    [{ agents: {} }, 'the options of orchestrate(): agents: there must be at least one agent'],
    [{ agents: [reader] }, 'the options of orchestrate(): agents: must be an object of agents'],
    [
      { agents: { reader: {} } },
      'the options of agent reader of orchestrate(): description: must be a text, not missing',
    ],
    [
      { agents: { reader: { ...reader, prompt: 'x' } } },
      'the options of agent reader of orchestrate(): `prompt` is not known',
    ],
    [{ agents: { reader: { ...reader, share: 2 } } }, 'share: must be a number above 0 and up to 1, not 2'],
    [{ agents: { reader }, atOnce: 0 }, 'atOnce: must be a whole number from 1 on, not 0'],
  ])('%j is refused', (options, message) => {
    expect(() => orchestrate(options as never)).toThrow(message)
  })
})
