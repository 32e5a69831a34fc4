import { defineEnvironment, textOf, z, type AssistantMessage, type Message } from 'millrace'
import { calls, runScripted } from 'millrace/testing'
import { expect, test } from 'vitest'
import { hash32, seededRandom } from '../../src/kit/index.ts'

const seeds = 50

/**
 * Children from a tool, from the tools of those children, from `update` and from two rewards at once. All of them use the
 * tools of the one parent, and what they do meets in its state.
 */
const environment = defineEnvironment({
  name: 'family',
  task: z.object({ parts: z.array(z.string()) }),
  tasks: () => [{ parts: ['a', 'b', 'c', 'd'] }],
  setup: () => ({ noted: new Map<string, number>() }),
  prompt: ({ task }) => `Ask your children about ${task.parts.join(' ')}.`,
  tools: {
    delegate: {
      parameters: z.object({ part: z.string() }),
      run: async ({ part }, { child, note }) => {
        // Both are asked the very same thing at once: two children all the same.
        const [one, other] = await Promise.all([
          child({ prompt: `Study ${part}.` }),
          child({ prompt: `Study ${part}.` }),
        ])
        note(`children of ${part}`, [one.id, other.id].toSorted())
        return `${one.answer} ${other.answer}`
      },
    },
    split: {
      parameters: z.object({ part: z.string() }),
      run: async ({ part }, { child }) => {
        const halves = await Promise.all(
          [1, 2].map((half) => child({ prompt: `Note ${part}${half}.`, tools: ['note'] })),
        )
        return halves.map(({ answer }) => answer).join(' and ')
      },
    },
    note: {
      parameters: z.object({ text: z.string() }),
      run: ({ text }, { state }) => {
        state.noted.set(text, (state.noted.get(text) ?? 0) + 1)
        return 'noted'
      },
    },
    recall: {
      parameters: z.object({}),
      // Not what those note that run beside it: that would be another answer each time.
      run: (_, { state }) =>
        [...state.noted.keys()]
          .filter((text) => text.length === 2)
          .toSorted()
          .join(' '),
    },
  },
  update: async ({ reply, child, note }) => {
    if (reply.content !== 'all asked') return
    const checks = await Promise.all(
      ['first', 'second', 'third'].map((which) => child({ prompt: `Recall, ${which}.` })),
    )
    note(
      'checks',
      checks.map(({ answer }) => answer),
    )
  },
  limits: { maxTurns: 1_000 },
  reward: {
    noted: async ({ state, child, note }) => {
      const answers = await Promise.all(['x', 'y'].map((part) => child({ prompt: `Note ${part}.`, tools: ['note'] })))
      const early = [...state.noted].filter(([text]) => text.length === 2)
      note(
        'noted',
        early.toSorted(([one], [other]) => one.localeCompare(other)),
      )
      return answers.filter(({ outcome }) => outcome === 'completed').length
    },
    recalled: async ({ child, answer }) => {
      const reviews = await Promise.all(['fourth', 'fifth'].map((which) => child({ prompt: `Recall, ${which}.` })))
      return answer === 'all asked' ? reviews.filter((review) => review.answer.includes('1')).length : 0
    },
  },
})

/** What the model says follows from the conversation alone. */
function replyTo(messages: readonly Message[]): string | AssistantMessage {
  const [first, last] = [messages[0], messages.at(-1)]
  const asked = first ? textOf(first) : ''
  const said = last?.role === 'tool' ? textOf(last) : undefined
  const [, verb, part = ''] = /^(Ask your children about|Study|Note|Recall,) (.+)\.$/.exec(asked) ?? []
  if (verb === 'Study') return said ?? calls({ split: { part } })
  if (verb === 'Note') return said === undefined ? calls({ note: { text: part } }) : `${part} is ${said}`
  if (verb === 'Recall,') return said ?? calls({ recall: {} })
  return said === undefined ? askAll(part.split(' ')) : 'all asked'
}

function askAll(parts: readonly string[]): AssistantMessage {
  const toolCalls = parts.map((part, index) => ({
    id: `call_${index}`,
    type: 'function' as const,
    function: { name: 'delegate', arguments: JSON.stringify({ part }) },
  }))
  return { role: 'assistant', content: null, tool_calls: toolCalls }
}

/**
 * Answers the calls of one rollout and its children in an order of its own: whenever a random pause is over, any one of those
 * that wait, until none does.
 */
function shuffled(seed: number): () => Promise<void> {
  const random = seededRandom(hash32('shuffle', seed))
  const waiting: (() => void)[] = []
  const answerOne = (): void => waiting.splice(Math.floor(random() * waiting.length), 1)[0]?.()
  return () =>
    new Promise((resolve) => {
      waiting.push(resolve)
      if (random() < 0.5) setImmediate(answerOne)
      else setTimeout(answerOne, random() * 5)
    })
}

test(`children have the same results in any order: ${seeds} concurrent seeds`, async () => {
  const turns = Array.from({ length: seeds }, (_, seed) => shuffled(seed))
  const { records, backend } = await runScripted({
    environment,
    attempts: seeds,
    concurrency: seeds,
    script: async ({ messages, sessionId }) => {
      const answer = replyTo(messages)
      // `0-7` is the eighth attempt at the only task; a child's id begins with its parent's.
      await turns[Number(/^0-(\d+)/.exec(sessionId)?.[1])]?.()
      return answer
    },
  })
  expect(records).toHaveLength(seeds)
  const [first] = records
  // 8 studies with 2 halves each, 3 from `update`, 4 from the rewards.
  expect(first).toMatchObject({ outcome: 'completed', reward: 4, children: 31, toolErrors: 0 })
  const all = 'a1 a2 b1 b2 c1 c2 d1 d2'
  expect(first?.info).toMatchObject({ checks: [all, all, all], noted: all.split(' ').map((text) => [text, 2]) })
  expect(new Set(['a', 'b', 'c', 'd'].flatMap((part) => first?.info?.[`children of ${part}`])).size).toBe(8)

  // They did run in different orders.
  expect(new Set(records.map(({ info = {} }) => Object.keys(info).join())).size).toBeGreaterThan(1)
  const results = records.map(({ timing: _timing, id, sample: _sample, ...rest }) => {
    const asked = backend.requests.filter(({ sessionId }) => `${sessionId}.`.startsWith(`${id}.`))
    const texts = asked.map(({ messages, tools }) => JSON.stringify([messages, tools])).toSorted()
    // Children are called after their parents.
    const info: unknown = JSON.parse(JSON.stringify(rest.info).replaceAll(`"${id}.`, '"'))
    return Object.assign(rest, { texts, info })
  })
  for (const [seed, result] of results.entries()) expect(result, `with seed ${seed}`).toEqual(results[0])
  expect(results[0]?.texts).toHaveLength(first?.usage.calls ?? 0)
})
