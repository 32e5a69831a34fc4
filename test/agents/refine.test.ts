import { defineEnvironment, refine, textOf, z, type Agent, type Message } from 'millrace'
import { calls, runScripted, type Script } from 'millrace/testing'
import { describe, expect, test } from 'vitest'

/** Its reward is right from the answer 3 on; it counts how often it is asked. */
function environmentWith(agent: Agent, more: object = {}) {
  const asked: string[] = []
  const environment = defineEnvironment({
    name: 'guess',
    task: z.object({ number: z.number() }),
    tasks: () => [{ number: 3 }],
    prompt: () => 'Guess.',
    tools: { think: { parameters: z.object({}), run: () => 'a thought' } },
    agent,
    reward: ({ task, answer }) => {
      asked.push(answer)
      return Number(answer) >= task.number
    },
    ...more,
  })
  return { environment, asked }
}

const answers = (messages: readonly Message[]): number =>
  messages.filter((message) => message.role === 'assistant' && !message.tool_calls).length

/** Thinks with a tool, then guesses 1, 2, 3, … */
const thinks: Script = ({ messages }) =>
  messages.at(-1)?.role === 'tool' ? String(answers(messages) + 1) : calls({ think: {} })

describe('refine', () => {
  test('answers again with what it is told, until the answer is good', async () => {
    const { environment, asked } = environmentWith(refine({ turns: 5 }))
    const { records } = await runScripted({ environment, script: thinks })
    expect(asked).toEqual(['1', '2', '3', '3'])
    expect(records).toMatchObject([
      { outcome: 'completed', reward: 1, answer: '3', turns: 6, toolCalls: 3, usage: { calls: 6 } },
    ])
    const told = records[0]?.messages.filter(({ role }) => role === 'user').map(textOf)
    expect(told).toEqual(['Guess.', ...Array(2).fill('The reward of this answer is 0, so it is not right yet.')])
  })

  test('stops when its turns are used up, and does not verify the last answer', async () => {
    const { environment, asked } = environmentWith(refine({ turns: 2 }))
    const { records } = await runScripted({ environment, script: thinks })
    expect(records).toMatchObject([{ outcome: 'completed', reward: 0, answer: '2', turns: 4 }])
    expect(asked).toEqual(['1', '2'])
  })

  test('refines any agent, and itself', async () => {
    const inner: Agent = async ({ turn }) => void (await turn({ tools: [] }))
    const { environment } = environmentWith(refine({ turns: 2, agent: refine({ turns: 2, agent: inner }) }))
    const { records } = await runScripted({ environment, script: ({ messages }) => String(answers(messages) + 1) })
    expect(records).toMatchObject([{ reward: 1, answer: '3', turns: 3 }])
  })

  test('ends when the environment ends the rollout', async () => {
    const { environment } = environmentWith(refine(), { update: () => ({ end: true }) })
    const { records } = await runScripted({ environment, script: () => '1' })
    expect(records).toMatchObject([{ outcome: 'completed', answer: '1', turns: 1 }])
  })

  test('ends as max_turns when the budget is used up', async () => {
    const { environment } = environmentWith(refine({ turns: 5 }), { limits: { maxTurns: 3 } })
    const { records } = await runScripted({ environment, script: thinks })
    expect(records).toMatchObject([{ outcome: 'max_turns', truncated: true, turns: 3, answer: '' }])
  })

  test('refuses options that are none', () => {
    expect(() => refine({ turns: 0 })).toThrow(
      'the options of refine(): turns: must be a whole number from 1 on, not 0',
    )
    expect(() => refine({ agent: 'plan' as never })).toThrow('agent: must be an agent, such as toolLoop()')
  })
})
