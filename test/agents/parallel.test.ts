import { defineEnvironment, MillraceError, parallel, plan, textOf, z, type Agent, type Message } from 'millrace'
import { calls, runScripted, type Script } from 'millrace/testing'
import { describe, expect, test } from 'vitest'
import { cutAnywhere } from '../support/agents/cut-anywhere.ts'

function environmentWith(agent: Agent, more: object = {}) {
  return defineEnvironment({
    name: 'sum',
    task: z.object({}),
    tasks: () => [{}],
    prompt: () => 'What is 2 + 3?',
    tools: {
      add: { parameters: z.object({ a: z.number(), b: z.number() }), resume: 'reuse', run: ({ a, b }) => a + b },
    },
    agent,
    reward: ({ answer }) => (answer.includes('5') ? 1 : Number(answer) / 10 || 0),
    ...more,
  })
}

/** Each attempt is asked the same, so it is told apart by its session. */
const attempts =
  (...answers: readonly string[]) =>
  (choose: Script = () => 'not asked'): Script => {
    const sessions: string[] = []
    return (request) => {
      if (request.messages[0]?.role === 'system') return choose(request)
      const session = request.sessionId
      if (!sessions.includes(session)) sessions.push(session)
      return answers[sessions.indexOf(session)] ?? 'too many'
    }
  }

const given = (messages: readonly Message[]): string => textOf(messages[1] as Message)

describe('parallel', () => {
  test.each([
    [
      'the same number in several words',
      ['4', 'I say so.\nAnswer: 5.', 'The answer is **5.0**', '6'],
      'I say so.\nAnswer: 5.',
    ],
    [
      'the marked answer, not the last line',
      [String.raw`\boxed{1,005} it is`, '7', '#### 1005'],
      String.raw`\boxed{1,005} it is`,
    ],
    ['the first of those with as many votes', ['b', 'a', 'a', 'b'], 'b'],
    ['an answer without its thoughts', ['4', '<think>4</think>5', '5'], '<think>4</think>5'],
  ])('votes for %s', async (_, answers, kept) => {
    const environment = environmentWith(parallel({ attempts: answers.length }))
    const { records, backend } = await runScripted({ environment, script: attempts(...answers)() })
    expect(records).toMatchObject([{ outcome: 'completed', answer: kept, turns: 0, children: answers.length }])
    expect(records[0]?.messages.map(({ role }) => role)).toEqual(['user', 'assistant'])
    expect(backend.requests).toHaveLength(answers.length)
  })

  test('verifies each attempt, and keeps the one with the highest reward', async () => {
    const environment = environmentWith(parallel({ attempts: 3, choose: 'verify' }))
    const { records } = await runScripted({ environment, script: attempts('3', '5', '4')() })
    expect(records).toMatchObject([{ answer: '5', reward: 1, children: 3 }])
  })

  test('has a model select the best, and asks it once more where it names none', async () => {
    const environment = environmentWith(parallel({ attempts: 3, choose: 'select' }))
    const selecting: Script = ({ messages }) => (messages.length === 2 ? 'The second?' : 'Best: **2**')
    const script = attempts('3', '5', '4')(selecting)
    const { records, backend } = await runScripted({ environment, script })
    expect(records).toMatchObject([{ answer: '5', children: 4, usage: { calls: 5 } }])
    expect(given(backend.requests.at(-1)?.messages ?? [])).toBe(
      '<conversation>\n<user>\nWhat is 2 + 3?\n</user>\n</conversation>\n<answer number="1">\n3\n</answer>\n<answer number="2">\n5\n</answer>\n<answer number="3">\n4\n</answer>',
    )
    const stubborn = await runScripted({ environment, script: attempts('3', '4', '4')(() => 'Best: 9') })
    expect(stubborn.records).toMatchObject([{ answer: '4' }])
  })

  test('asks no model to select where all attempts agree', async () => {
    const environment = environmentWith(parallel({ attempts: 2, choose: 'select' }))
    const { records } = await runScripted({ environment, script: attempts('5', '5')() })
    expect(records).toMatchObject([{ answer: '5', children: 2 }])
  })

  test('has a model merge all answers', async () => {
    const environment = environmentWith(parallel({ attempts: 2, choose: 'merge' }))
    const merging: Script = ({ messages }) =>
      [...given(messages).matchAll(/<answer.*>\n(.*)\n/g)].map(([, answer]) => answer).join(' and ')
    const { records } = await runScripted({ environment, script: attempts('3', '5')(merging) })
    expect(records).toMatchObject([{ answer: '3 and 5', reward: 1, children: 3, turns: 0 }])
  })

  const unless = (right: string, otherwise: Agent): Agent => {
    return async (context) => {
      const { message } = await context.turn()
      if (message.content !== right) await otherwise(context)
    }
  }

  test('leaves out attempts that use up their part, and ends as the first of them where all do', async () => {
    const greedy = unless('5', async ({ turn }) => {
      for (;;) await turn()
    })
    const environment = environmentWith(parallel({ attempts: 3, agent: greedy }))
    const some = await runScripted({ environment, script: attempts('3', '4', '5')() })
    expect(some.records).toMatchObject([{ outcome: 'completed', answer: '5' }])
    const none = await runScripted({ environment, retries: 0, script: attempts('3', '4', '6')() })
    expect(none.records).toMatchObject([{ outcome: 'max_turns', truncated: true, answer: null }])
  })

  test('an attempt that fails otherwise ends the rollout: it is not scored without it', async () => {
    const failing = unless('5', () => Promise.reject(new Error('no idea')))
    const environment = environmentWith(parallel({ attempts: 3, agent: failing }))
    const { records } = await runScripted({ environment, retries: 0, script: attempts('3', '5', '5')() })
    const error = { message: expect.stringContaining('no idea') }
    expect(records).toMatchObject([{ outcome: 'agent_error', reward: null, error }])
    const answers = attempts('3', '5', '5')()
    const script: Script = (request) => {
      if (answers(request) === '3') throw new MillraceError('model_server_error', 'down')
      return answers(request)
    }
    const down = await runScripted({ environment, retries: 0, script })
    expect(down.records).toMatchObject([{ outcome: 'model_error', reward: null }])
  })

  test('a reward that fails while an attempt is verified ends the rollout', async () => {
    const environment = environmentWith(parallel({ choose: 'verify' }), {
      reward: () => {
        throw new Error('no scale')
      },
    })
    const { records } = await runScripted({ environment, retries: 0, script: () => '5' })
    expect(records).toMatchObject([
      { outcome: 'reward_error', error: { message: expect.stringContaining('no scale') } },
    ])
  })

  test('divides what is left of the budget among the attempts', async () => {
    const lefts: number[] = []
    const greedy: Agent = async ({ turn, budget }) => {
      lefts.push(budget.turnsLeft)
      for (;;) await turn()
    }
    const environment = environmentWith(parallel({ attempts: 3, agent: greedy }), { limits: { maxTurns: 10 } })
    const { records } = await runScripted({ environment, script: () => '5' })
    expect(lefts).toEqual([3, 3, 3])
    expect(records).toMatchObject([{ outcome: 'max_turns', usage: { calls: 9 } }])
  })

  test.each([
    ['select', 4, 4, 3],
    ['merge', 4, 4, 3],
    ['merge', 64, 50, 49],
    ['merge', 1, 1, 1],
    ['vote', 4, 3, 3],
  ] as const)('%s of %i attempts with %i turns makes %i attempts', async (choose, wanted, maxTurns, made) => {
    const environment = environmentWith(parallel({ attempts: wanted, choose }), { limits: { maxTurns } })
    const script = attempts('3', '5', ...Array<string>(47).fill('4'))(() => (choose === 'select' ? 'Best: 2' : '5'))
    const { records } = await runScripted({ environment, script })
    const answer = choose === 'vote' || wanted === 1 ? '3' : '5'
    const children = made + (choose === 'vote' ? 0 : 1)
    expect(records).toMatchObject([{ outcome: 'completed', answer, children, usage: { calls: maxTurns } }])
  })

  test('keeps turns and tokens for the model that merges', async () => {
    const lefts: string[] = []
    const agent: Agent = async ({ turn, budget }) => {
      lefts.push(`${budget.turnsLeft} turns, ${budget.tokensLeft} tokens`)
      await turn()
    }
    const limits = { maxTurns: 11, maxTokens: 300 }
    const environment = environmentWith(parallel({ attempts: 2, choose: 'merge', agent }), { limits })
    await runScripted({ environment, script: () => '5' })
    expect(lefts).toEqual(Array(2).fill('5 turns, 100 tokens'))
  })

  const cutShort: Script = () => ({ message: { role: 'assistant', content: 'Best: 1' }, finishReason: 'length' })
  test.each<['select' | 'merge', string, Script]>([
    ['select', 'is cut', cutShort],
    ['merge', 'is cut', cutShort],
    ['select', 'has no turn left', () => 'None?'],
  ])('the vote decides if the model that is to %s %s', async (choose, _, choosing) => {
    const environment = environmentWith(parallel({ attempts: 3, choose }), { limits: { maxTurns: 4 } })
    const { records } = await runScripted({ environment, script: attempts('3', '5', '5')(choosing) })
    expect(records).toMatchObject([{ outcome: 'completed', answer: '5', reward: 1, children: 4 }])
  })

  test('goes on after a message of the environment, from the answer that was kept', async () => {
    const environment = environmentWith(parallel({ attempts: 2 }), {
      update: ({ messages }: { messages: readonly Message[] }) =>
        messages.length === 2 ? { messages: [{ role: 'user', content: 'Sure?' }] } : undefined,
    })
    const { records, backend } = await runScripted({
      environment,
      script: ({ messages }) => `5 after ${messages.length}`,
    })
    expect(records[0]?.messages.map(textOf)).toEqual(['What is 2 + 3?', '5 after 1', 'Sure?', '5 after 3'])
    expect(backend.requests).toHaveLength(4)
  })

  test('with calls written as text, each attempt is told of the tools once', async () => {
    const environment = environmentWith(parallel({ attempts: 2 }), { toolFormat: 'hermes' })
    const { records, backend } = await runScripted({ environment, script: () => '5' })
    expect(records).toMatchObject([{ answer: '5', children: 2 }])
    for (const { messages } of backend.requests) expect(textOf(messages[0] as Message).split('"add"')).toHaveLength(2)
  })

  test('wherever it is cut off, it goes on as if it had not been, and replays', async () => {
    const using: Script = ({ messages }) => {
      const [first, last] = [textOf(messages[0] as Message), messages.at(-1) as Message]
      if (first.startsWith('You choose')) return 'Best: 2'
      if (first.startsWith('What')) return last.role === 'tool' ? textOf(last) : calls({ add: { a: 2, b: 3 } })
      return '[]'
    }
    const verified = parallel({ attempts: 2, choose: 'verify' })
    const [whole, ...cut] = await cutAnywhere(environmentWith(parallel({ attempts: 2, agent: verified })), using)
    expect(whole).toMatchObject({ record: { reward: 1, children: 6, toolCalls: 4 }, replay: ['identical'] })
    expect(cut).toHaveLength(8)
    for (const run of cut) expect(run, `cut at ${run.cutAt}`).toEqual({ ...whole, cutAt: run.cutAt })
  })

  test('an attempt may be made by any agent', async () => {
    const environment = environmentWith(parallel({ attempts: 2, agent: plan() }))
    const { records } = await runScripted({
      environment,
      script: ({ messages }) =>
        textOf(messages.at(-1) as Message).includes('Reply with the plan')
          ? '[{"id": "E1", "tool": "add", "arguments": {"a": 2, "b": 3}}]'
          : textOf(messages.at(-1) as Message),
    })
    expect(records).toMatchObject([{ answer: '5', children: 4, toolCalls: 2 }])
  })

  test('refuses options that are none', () => {
    expect(() => parallel({ attempts: 65 })).toThrow('attempts: must be a whole number from 1 to 64, not 65')
    expect(() => parallel({ choose: 'best' as never })).toThrow('choose: must be one of vote, verify, select, merge')
  })
})
