import { defineEnvironment, nonExecuting, singleTurn, z, type Agent } from 'millrace'
import { calls, runScripted } from 'millrace/testing'
import { describe, expect, test } from 'vitest'

/** Its tool must not run, and its update asks for more. */
function environmentWith(agent: Agent) {
  const heard: (string | null)[] = []
  let runs = 0
  const environment = defineEnvironment({
    name: 'one-reply',
    task: z.object({}),
    tasks: () => [{}],
    prompt: () => 'Look it up.',
    agent,
    tools: { look: { parameters: z.object({ what: z.string() }), run: () => String((runs += 1)) } },
    update: ({ reply }) => {
      heard.push(reply.content)
      return { messages: [{ role: 'user', content: 'Go on.' }] }
    },
    reward: ({ messages }) => messages.at(-1)?.role === 'assistant',
  })
  return { environment, heard, runs: () => runs }
}

describe('singleTurn', () => {
  test('takes one reply without tools, and tells update of it', async () => {
    const { environment, heard } = environmentWith(singleTurn())
    const { records, backend } = await runScripted({ environment, script: () => 'as far as I know, 4' })
    expect(records).toMatchObject([{ outcome: 'completed', turns: 1, toolCalls: 0, reward: 1 }])
    expect(backend.requests.map(({ tools }) => tools)).toEqual([[]])
    expect(heard).toEqual(['as far as I know, 4'])
  })

  test('ends as max_tokens where the reply was cut', async () => {
    const { environment } = environmentWith(singleTurn())
    const { records } = await runScripted({
      environment,
      script: () => ({ message: { role: 'assistant', content: 'as far' }, finishReason: 'length' }),
    })
    expect(records).toMatchObject([{ outcome: 'max_tokens', truncated: true }])
  })
})

describe('nonExecuting', () => {
  test('declares the tools and runs none of the calls, which the reward can read', async () => {
    const { environment, runs } = environmentWith(nonExecuting())
    const { records, backend } = await runScripted({ environment, script: () => calls({ look: { what: 'tides' } }) })
    expect(records).toMatchObject([{ outcome: 'completed', turns: 1, toolCalls: 0, reward: 1 }])
    expect(records[0]?.messages.at(-1)).toEqual(calls({ look: { what: 'tides' } }))
    expect(backend.requests.map(({ tools }) => tools.map((tool) => tool.function.name))).toEqual([['look']])
    expect(runs()).toBe(0)
  })
})
