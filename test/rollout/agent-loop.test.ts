import {
  defineEnvironment,
  judge,
  MillraceError,
  z,
  type Agent,
  type AssistantMessage,
  type Message,
  type ParsedToolCall,
} from 'millrace'
import { calls, runScripted, type Script } from 'millrace/testing'
import { describe, expect, test } from 'vitest'

const task = z.object({ question: z.string() })
const tasks = () => [{ question: 'go' }]
const prompt = () => 'go'

const hasToolResult = (messages: readonly Message[]): boolean => messages.at(-1)?.role === 'tool'
const toolResults = (messages: readonly Message[]): Message[] => messages.filter(({ role }) => role === 'tool')

test('an agent that ignores errors ends at its timeout, and does not block others', async () => {
  const environment = defineEnvironment({
    name: 'stubborn',
    task,
    tasks: () => [{ question: 'one' }, { question: 'two' }],
    prompt,
    agent: async ({ turn, signal }) => {
      // So that the test ends, too.
      while (!signal.aborted) await turn().catch(() => {})
    },
    limits: { maxTurns: 2, timeoutMs: 300 },
    reward: () => 1,
  })
  const { records } = await runScripted({ environment, script: () => 'done' })
  expect(records.map(({ outcome, turns }) => ({ outcome, turns }))).toEqual([
    { outcome: 'agent_timeout', turns: 2 },
    { outcome: 'agent_timeout', turns: 2 },
  ])
})

describe('the tool loop', () => {
  test('runs all calls of a turn at once, and answers in the order of the calls', async () => {
    let running = 0
    let most = 0
    const wait = async (): Promise<string> => {
      running += 1
      most = Math.max(most, running)
      await new Promise((resolve) => setImmediate(resolve))
      running -= 1
      return `${most}`
    }
    const environment = defineEnvironment({
      name: 'parallel',
      task,
      tasks,
      prompt,
      tools: { a: { parameters: z.object({}), run: wait }, b: { parameters: z.object({}), run: wait } },
      reward: () => 1,
    })
    const { records } = await runScripted({
      environment,
      script: ({ messages }) => (hasToolResult(messages) ? 'done' : calls({ a: {}, b: {} })),
    })
    expect(most).toBe(2)
    expect(
      toolResults(records[0]?.messages ?? []).map((message) => 'tool_call_id' in message && message.tool_call_id),
    ).toEqual(['call_0', 'call_1'])
    expect(records[0]).toMatchObject({ outcome: 'completed', turns: 2, toolCalls: 2, toolErrors: 0 })
  })

  test('an exclusive tool runs alone', async () => {
    let running = 0
    let mostBesideExclusive = 0
    const environment = defineEnvironment({
      name: 'exclusive',
      task,
      tasks,
      prompt,
      tools: {
        plain: {
          parameters: z.object({}),
          run: async () => {
            running += 1
            await new Promise((resolve) => setImmediate(resolve))
            running -= 1
          },
        },
        alone: {
          parameters: z.object({}),
          exclusive: true,
          run: async () => {
            mostBesideExclusive = Math.max(mostBesideExclusive, running)
            await new Promise((resolve) => setImmediate(resolve))
            mostBesideExclusive = Math.max(mostBesideExclusive, running)
          },
        },
      },
      reward: () => 1,
    })
    const turn: AssistantMessage = {
      role: 'assistant',
      content: null,
      tool_calls: ['plain', 'alone', 'plain'].map((name, index) => ({
        id: `c${index}`,
        type: 'function',
        function: { name, arguments: '{}' },
      })),
    }
    await runScripted({ environment, script: ({ messages }) => (hasToolResult(messages) ? 'done' : turn) })
    expect(mostBesideExclusive).toBe(0)
  })

  test('bad arguments, unknown tools and failures are shown to the model and counted', async () => {
    const environment = defineEnvironment({
      name: 'sloppy',
      task,
      tasks,
      prompt,
      tools: {
        add: { parameters: z.object({ a: z.number() }), run: ({ a }) => a + 1 },
        fail: {
          parameters: z.object({}),
          run: () => {
            throw new Error('the disk is on fire')
          },
        },
      },
      reward: () => 1,
    })
    const { records } = await runScripted({
      environment,
      script: ({ messages }) =>
        hasToolResult(messages) ? 'done' : calls({ add: { a: 'one' }, ad: { a: 1 }, fail: {} }),
    })
    const shown = toolResults(records[0]?.messages ?? []).map(({ content }) => String(content))
    expect(shown[0]).toMatch(/a: /)
    expect(shown[1]).toMatch(/add/)
    expect(shown[2]).toMatch(/the disk is on fire/)
    expect(records[0]).toMatchObject({ outcome: 'completed', toolCalls: 3, toolErrors: 3 })
  })

  test('passes reasoning, refusals and images to the record and back to the model', async () => {
    const image = { type: 'image_url' as const, image_url: { url: 'data:image/png;base64,iVBORw0KGgo=' } }
    const environment = defineEnvironment({
      name: 'rich',
      task,
      tasks,
      prompt: () => [{ role: 'user', content: [{ type: 'text', text: 'what is this?' }, image] }],
      tools: { look: { parameters: z.object({}), run: () => [{ type: 'text' as const, text: 'closer' }, image] } },
      reward: ({ messages }) => messages.length,
    })
    const first: AssistantMessage = { ...calls({ look: {} }), reasoning_content: 'I should look' }
    const last: AssistantMessage = { role: 'assistant', content: null, refusal: 'I will not say' }
    const { records, backend } = await runScripted({
      environment,
      script: ({ messages }) => (hasToolResult(messages) ? last : first),
    })
    expect(records[0]?.messages).toEqual([
      { role: 'user', content: [{ type: 'text', text: 'what is this?' }, image] },
      first,
      { role: 'tool', tool_call_id: 'call_0', content: [{ type: 'text', text: 'closer' }, image] },
      last,
    ])
    expect(backend.requests[1]?.messages[1]).toEqual(first)
  })

  test('lets the environment add messages and end the rollout', async () => {
    const environment = defineEnvironment({
      name: 'user-simulator',
      task,
      tasks,
      setup: () => ({ asked: 0 }),
      prompt,
      update: ({ state, reply }) => {
        state.asked += 1
        if (reply.content === 'enough') return { end: true }
        return { messages: [{ role: 'user' as const, content: `again ${state.asked}` }] }
      },
      reward: ({ state }) => state.asked,
    })
    const { records } = await runScripted({
      environment,
      script: ({ messages }) => (messages.length > 4 ? 'enough' : 'more'),
    })
    expect(records[0]).toMatchObject({ outcome: 'completed', reward: 3, turns: 3 })
    expect(records[0]?.messages.map(({ role }) => role)).toEqual([
      'user',
      'assistant',
      'user',
      'assistant',
      'user',
      'assistant',
    ])
  })
})

describe('limits and outcomes', () => {
  const looping = defineEnvironment({
    name: 'looping',
    task,
    tasks,
    prompt,
    tools: { again: { parameters: z.object({}), run: () => 'again' } },
    reward: ({ truncated, outcome }) => (truncated ? outcome.length : 0),
  })

  test.each([
    ['max_turns', { maxTurns: 3 }],
    ['max_tokens', { maxTokens: 20 }],
    ['max_cost', { maxCostUsd: 0.000_05 }],
  ] as const)('%s ends the agent; the rollout is truncated and scored', async (outcome, limits) => {
    const { records } = await runScripted({ environment: looping, limits, script: () => calls({ again: {} }) })
    expect(records[0]).toMatchObject({ outcome, truncated: true, reward: outcome.length })
    expect(records[0]?.error).toBeUndefined()
  })

  test('a reply cut at its length limit ends as max_tokens', async () => {
    const { records } = await runScripted({
      environment: looping,
      script: () => ({
        message: { role: 'assistant', content: 'half a thou' },
        finishReason: 'length',
        usage: { calls: 1, input: 1, cachedInput: 0, output: 3, reasoning: 0 },
      }),
    })
    expect(records[0]).toMatchObject({ outcome: 'max_tokens', truncated: true, answer: 'half a thou' })
  })

  test('agent_timeout ends the agent although its tool ignores the signal', async () => {
    const environment = defineEnvironment({
      name: 'slow',
      task,
      tasks,
      prompt,
      tools: { hang: { parameters: z.object({}), run: () => new Promise<string>(() => {}) } },
      reward: ({ truncated }) => truncated,
    })
    const { records } = await runScripted({
      environment,
      limits: { timeoutMs: 30 },
      script: () => calls({ hang: {} }),
    })
    const cutOff = { outcome: 'agent_timeout', truncated: true, cutOffIn: 'tool hang' }
    expect(records[0]).toMatchObject({ ...cutOff, reward: 1, toolCalls: 0 })
    expect(records[0]).not.toHaveProperty('error')
    // Nobody heard an answer, but that is where the time went.
    expect(records[0]?.timing.toolMs).toBeGreaterThan(0)
  })

  test('agent_timeout names the context policy if it ends there', async () => {
    const environment = defineEnvironment({
      name: 'pondering',
      task,
      tasks,
      prompt,
      contextPolicy: () => new Promise(() => {}),
      reward: ({ truncated }) => truncated,
    })
    const { records } = await runScripted({ environment, limits: { timeoutMs: 30 }, script: () => 'never' })
    expect(records[0]).toMatchObject({ outcome: 'agent_timeout', reward: 1, cutOffIn: 'contextPolicy' })
  })

  test('the time of calls that are not awaited is counted once', async () => {
    const answered = Promise.withResolvers<string>()
    const hang = { parameters: z.object({}), run: () => answered.promise }
    const environment = defineEnvironment({
      name: 'hasty',
      task,
      tasks,
      prompt,
      tools: { hang },
      agent: async ({ tools }) => {
        void tools.call([{ id: '1', type: 'function', function: { name: 'hang', arguments: '{}' } }])
        await new Promise((resolve) => setTimeout(resolve, 20))
      },
      reward: async () => {
        await new Promise((resolve) => setTimeout(resolve, 20))
        answered.resolve('late')
        await new Promise((resolve) => setTimeout(resolve, 20))
        return 1
      },
    })
    const { records } = await runScripted({ environment, script: () => 'never asked' })
    const { toolMs = 0, workingMs = 0 } = records[0]?.timing ?? {}
    expect(toolMs).toBeGreaterThan(0)
    expect(toolMs).toBeLessThanOrEqual(workingMs)
  })

  test('a tool call that is not awaited is aborted before the reward runs', async () => {
    const order: string[] = []
    const environment = defineEnvironment({
      name: 'leaves a call',
      task,
      tasks,
      prompt,
      setup: ({ signal }) => ({ signal }),
      tools: {
        slow: {
          parameters: z.object({}),
          run: (_, { signal }) =>
            new Promise<string>(() => signal.addEventListener('abort', () => order.push('call given up'))),
        },
      },
      agent: async ({ tools }) => {
        void tools.call([{ id: '1', type: 'function', function: { name: 'slow', arguments: '{}' } }])
      },
      reward: ({ state }) => {
        order.push('reward')
        // What was set up with it is still needed.
        return state.signal.aborted ? 0 : 1
      },
      teardown: () => void order.push('teardown'),
    })
    const { records } = await runScripted({ environment, script: () => 'never asked' })
    expect(order).toEqual(['call given up', 'reward', 'teardown'])
    expect(records[0]).toMatchObject({ outcome: 'completed', reward: 1 })
  })

  test.each(['returns', 'throws'])('a turn that is not awaited ends with its agent: it %s', async (how) => {
    const asked = Promise.withResolvers<AbortSignal>()
    const environment = defineEnvironment({
      name: 'leaves a turn',
      task,
      tasks,
      prompt,
      agent: async ({ turn }) => {
        const other = asked.promise.then(() => {
          if (how === 'throws') throw new Error('the other half failed')
        })
        await Promise.race([turn(), other])
      },
      reward: async () => ((await asked.promise).aborted ? 1 : 0),
    })
    const { records } = await runScripted({
      environment,
      script: async ({ signal }) => {
        asked.resolve(signal)
        await new Promise((resolve) => signal.addEventListener('abort', resolve))
        return 'nobody listens'
      },
    })
    const expected =
      how === 'returns'
        ? { outcome: 'completed', reward: 1 }
        : { outcome: 'agent_error', error: { message: expect.stringContaining('the other half failed') } }
    expect(records[0]).toMatchObject(expected)
    expect((await asked.promise).aborted).toBe(true)
  })

  test('infra_timeout: a rollout that reaches the wall-clock limit has no score', async () => {
    const environment = defineEnvironment({
      name: 'slow-setup',
      task,
      tasks,
      setup: () => new Promise<undefined>(() => {}),
      prompt,
      reward: () => 1,
    })
    const { records } = await runScripted({
      environment,
      limits: { wallTimeoutMs: 40, tailMs: 10 },
      retries: 1,
      script: () => 'never asked',
    })
    expect(records[0]).toMatchObject({ outcome: 'infra_timeout', reward: null, attempt: 2 })
    expect(records[0]?.error?.message).toContain('the wall-clock limit is reached, in setup')
  })

  test('the error of a rollout names the tool, update or reward that never ends', async () => {
    const never = () => new Promise<never>(() => {})
    const limits = { wallTimeoutMs: 200, tailMs: 50 }
    const errorOf = async (more: object, script: Script = () => 'fine'): Promise<string | undefined> => {
      const environment = defineEnvironment({ name: 'stuck', task, tasks, prompt, reward: () => 1, ...more })
      const { records } = await runScripted({ environment, limits, retries: 0, script })
      return records[0]?.error?.message
    }
    const stuck = { description: 'Never answers.', parameters: z.object({}), run: never }
    const calling = { tools: { hang: stuck, wait: stuck } }
    expect(await errorOf(calling, () => calls({ hang: {} }))).toContain('limit is reached, in tool hang')
    expect(await errorOf(calling, () => calls({ hang: {}, wait: {} }))).toContain(
      'limit is reached, in tools hang, wait',
    )
    const call = (name: string): ParsedToolCall => ({ id: name, type: 'function', function: { name, arguments: '{}' } })
    const agent: Agent = async ({ tools }) => {
      await Promise.all([tools.call([call('hang')]), tools.call([call('quick')])])
    }
    const quick = { ...stuck, run: () => 'done' }
    expect(await errorOf({ agent, tools: { hang: stuck, quick } })).toContain('limit is reached, in tool hang')
    expect(await errorOf({ update: never })).toContain('limit is reached, in update')
    const reward = { quick: { weight: 1, score: () => 1 }, slow: { weight: 1, score: never } }
    expect(await errorOf({ reward })).toContain(
      'took longer than the 50 ms reserved for it (limits.tailMs): "slow" had not ended',
    )
  })

  test('a reward that waits for an unavailable judge ends at the wall-clock limit', async () => {
    const environment = defineEnvironment({ name: 'judged', task, tasks, prompt, reward: judge() })
    const { records } = await runScripted({
      environment,
      limits: { wallTimeoutMs: 400, tailMs: 100 },
      // The judge, whose first message is the system's, is overloaded for good: questions to it park.
      script: ({ messages }) => {
        if (messages[0]?.role !== 'system') return 'fine'
        throw new MillraceError('model_overloaded', 'for good')
      },
      maxTries: 2,
    })
    expect(records[0]).toMatchObject({ outcome: 'reward_error', reward: null, answer: 'fine' })
    expect(records[0]?.error?.message).toContain('400 ms (wallTimeoutMs)')
  })

  test.each([
    ['model_error', 'model_server_error', 2],
    ['context_length', 'context_length', 1],
    ['model_error', 'model_auth', 2],
  ] as const)('%s after %s', async (outcome, code, attempt) => {
    const { records } = await runScripted({
      environment: looping,
      retries: 1,
      models: {},
      script: () => {
        throw new MillraceError(code, 'said the backend', { data: { retryAfterMs: 1 } })
      },
    })
    expect(records[0]).toMatchObject({ outcome, attempt })
    expect(records[0]?.reward === null).toBe(outcome === 'model_error')
  })

  test.each([
    ['env_error', { setup: () => Promise.reject(new Error('no room')) }],
    ['env_error', { prompt: () => [] as Message[] }],
    ['agent_error', { agent: () => Promise.reject(new Error('lost my way')) }],
    ['reward_error', { reward: () => Number.NaN }],
    ['env_error', { teardown: () => Promise.reject(new Error('stuck')) }],
  ] as const)('%s if %o fails: no reward, the reason is stored, and the run continues', async (outcome, part) => {
    const environment = defineEnvironment({
      name: 'failing',
      task: z.object({ index: z.number() }),
      tasks: () => [{ index: 0 }, { index: 1 }],
      prompt,
      reward: () => 1,
      ...part,
    })
    const { records } = await runScripted({ environment, script: () => 'fine' })
    expect(records).toHaveLength(2)
    for (const record of records) {
      expect(record).toMatchObject({ outcome, reward: null, attempt: 1 })
      expect(record.error?.message).toBeTruthy()
    }
  })

  test('teardown runs after every outcome, once setup has begun', async () => {
    const torn: string[] = []
    for (const failing of ['nothing', 'setup', 'agent', 'reward'] as const) {
      const fail = (where: string): void => {
        if (where === failing) throw new Error(where)
      }
      const environment = defineEnvironment({
        name: 'tidy',
        task,
        tasks,
        setup: () => {
          fail('setup')
          return 'state'
        },
        prompt,
        agent: async ({ turn }) => {
          await turn()
          fail('agent')
        },
        reward: () => {
          fail('reward')
          return 1
        },
        teardown: ({ state }) => {
          torn.push(`${failing} ${state}`)
        },
      })
      await runScripted({ environment, script: () => 'fine' })
    }
    expect(torn).toEqual(['nothing state', 'setup undefined', 'agent state', 'reward state'])
  })
})

test('a tool server failure during setup or reward gives no reward and another attempt', async () => {
  for (const phase of ['setup', 'reward'] as const) {
    let failures = 1
    const fail = (where: string): void => {
      if (where === phase && failures-- > 0) throw new MillraceError('tool_infra', 'the server died')
    }
    const environment = defineEnvironment({
      name: 'infra',
      task,
      tasks,
      setup: () => fail('setup'),
      prompt,
      reward: () => {
        fail('reward')
        return 1
      },
    })
    const { records } = await runScripted({ environment, retries: 1, script: () => 'fine' })
    expect(records[0]).toMatchObject({ outcome: 'completed', reward: 1, attempt: 2 })
  }
})

test('teardown is awaited when a rollout is stopped', async () => {
  const torn: string[] = []
  const stop = new AbortController()
  const environment = defineEnvironment({
    name: 'stopped',
    task,
    tasks,
    prompt,
    teardown: async () => {
      await new Promise((resolve) => setTimeout(resolve, 30))
      torn.push('down')
    },
    reward: () => 1,
  })
  await runScripted({
    environment,
    signal: stop.signal,
    script: () => {
      stop.abort()
      return new Promise(() => {})
    },
  })
  expect(torn).toEqual(['down'])
})
