import { defineEnvironment, reflect, textOf, z, type Agent, type Message } from 'millrace'
import { calls, runScripted, ScriptedBackend, type Script } from 'millrace/testing'
import { describe, expect, test } from 'vitest'
import { cutAnywhere } from '../support/agents/cut-anywhere.ts'

function environmentWith(agent: Agent, more: object = {}) {
  return defineEnvironment({
    name: 'sum',
    task: z.object({}),
    tasks: () => [{}],
    prompt: () => 'What is 2 + 3?',
    tools: {
      add: { parameters: z.object({ a: z.number(), b: z.number() }), resume: 'rerun', run: ({ a, b }) => a + b },
    },
    agent,
    reward: ({ answer }) => answer === '5',
    ...more,
  })
}

const isCritic = ([first]: readonly Message[]): boolean =>
  first?.role === 'system' && textOf(first).startsWith('You review the work')

/** Answers 3, 4, 5, …, and has a critic who wants 5. */
const script: Script = ({ messages }) => {
  if (!isCritic(messages)) return String(messages.filter(({ role }) => role === 'assistant').length + 3)
  return textOf(messages[1] as Message).includes('<answer>\n5\n') ? 'APPROVED.' : 'Too low.'
}

describe('reflect', () => {
  test('answers again with the critique, until the critic approves', async () => {
    const environment = environmentWith(reflect({ turns: 5 }))
    const { records, backend } = await runScripted({ environment, script })
    expect(records).toMatchObject([{ outcome: 'completed', reward: 1, answer: '5', turns: 3, children: 3 }])
    const told =
      'A reviewer has read your answer. Revise it, and reply with the whole revised answer. The review:\n\nToo low.'
    expect(records[0]?.messages.map(textOf)).toEqual(['What is 2 + 3?', '3', told, '4', told, '5'])
    const criticised = backend.requests.filter(({ messages }) => isCritic(messages))
    // It sees the conversation from outside, and has no tools.
    expect(criticised.map(({ tools }) => tools)).toEqual([[], [], []])
    expect(textOf(criticised[1]?.messages[1] as Message)).toBe(
      `<conversation>\n<user>\nWhat is 2 + 3?\n</user>\n<assistant>\n3\n</assistant>\n<user>\n${told}\n</user>\n</conversation>\n<answer>\n4\n</answer>`,
    )
  })

  test('stops when its turns are used up, without a critique of the last answer', async () => {
    const { records } = await runScripted({ environment: environmentWith(reflect()), script })
    expect(records).toMatchObject([{ reward: 0, answer: '4', turns: 2, children: 1 }])
  })

  test('the critic may have a model, instructions, tools and an agent of its own', async () => {
    const seen: string[] = []
    const grader = new ScriptedBackend(({ messages, tools }) => {
      seen.push(
        `${textOf(messages[0] as Message)
          .split('\n')
          .at(-1)} ${tools.map((tool) => tool.function.name).join()}`,
      )
      return messages.at(-1)?.role === 'tool'
        ? `It is ${textOf(messages.at(-1) as Message)}.`
        : calls({ add: { a: 2, b: 3 } })
    })
    const turnsOfCritic: number[] = []
    const critic: Agent = async ({ turn, tools, append }) => {
      const { calls: asked } = await turn()
      append(...(await tools.call(asked)))
      await turn()
      turnsOfCritic.push(2)
    }
    const agent = reflect({ model: 'grader', instructions: 'Mind the units.', tools: ['add'], critic })
    const { records } = await runScripted({
      environment: environmentWith(agent),
      script: ({ messages }) =>
        messages.length === 1 ? '4' : (/It is (\d)/.exec(textOf(messages.at(-1) as Message))?.[1] ?? ''),
      models: { scripted: {}, grader: {} },
      backends: { grader: [grader] },
    })
    expect(records).toMatchObject([{ reward: 1, answer: '5', toolCalls: 1, children: 1 }])
    expect(seen).toEqual(['Mind the units. add', 'Mind the units. add'])
    expect(turnsOfCritic).toEqual([2])
  })

  test('shows the critic calls with their results, long ones only in part, and no thoughts', async () => {
    const environment = environmentWith(reflect(), {
      tools: { look: { parameters: z.object({}), run: () => 'x'.repeat(3_000) } },
    })
    const { backend } = await runScripted({
      environment,
      script: ({ messages }) => {
        if (isCritic(messages)) return 'APPROVED'
        return messages.at(-1)?.role === 'tool' ? '<think>hm</think>5' : calls({ look: {} })
      },
    })
    const shown = textOf(backend.requests.at(-1)?.messages[1] as Message)
    expect(shown).toContain('<assistant>\n<call>\nlook {}\n</call>\n</assistant>')
    expect(shown).toContain(`<result>\n${'x'.repeat(2_000)}…\n</result>`)
    expect(shown).toContain('<answer>\n5\n</answer>')
  })

  test('ends when the environment ends the rollout, and as the critic does if that fails', async () => {
    const ending = environmentWith(reflect(), { update: () => ({ end: true }) })
    expect((await runScripted({ environment: ending, script })).records).toMatchObject([{ answer: '3', children: 0 }])
    const { records } = await runScripted({
      environment: environmentWith(reflect()),
      retries: 0,
      script: (request) => {
        if (isCritic(request.messages)) throw new Error('down')
        return script(request)
      },
    })
    expect(records).toMatchObject([{ outcome: 'model_error', reward: null }])
  })

  test('wherever it is cut off, it goes on as if it had not been, and replays', async () => {
    const [whole, ...cut] = await cutAnywhere(environmentWith(reflect({ turns: 3 })), script)
    expect(whole).toMatchObject({ record: { reward: 1, children: 2, turns: 3 }, replay: ['identical'] })
    expect(cut).toHaveLength(5)
    for (const run of cut) expect(run, `cut at ${run.cutAt}`).toEqual({ ...whole, cutAt: run.cutAt })
  })

  test('refuses options that are none', () => {
    expect(() => reflect({ turns: 0 })).toThrow('the options of reflect(): turns: must be a whole number from 1 on')
    expect(() => reflect({ tools: 'add' as never })).toThrow("tools: must be a list of names of tools, not 'add'")
  })
})
