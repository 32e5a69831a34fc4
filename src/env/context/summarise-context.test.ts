import { describe, expect, test } from 'vitest'
import type { Message } from '../../schema/index.ts'
import { contextView, toolTurn } from '../../../test/support/env/context-view.ts'
import { summariseContext } from './summarise-context.ts'

const opening: readonly Message[] = [
  { role: 'system', content: 'Be brief.' },
  { role: 'user', content: 'Find it.' },
]
const turns = ['a', 'b', 'c', 'd', 'e', 'f'].map((name) => toolTurn(name, `result of ${name}`))
const after = (count: number) => [...opening, ...turns.slice(0, count).flat()]
const policy = summariseContext({ whenTokens: 1000, keepLast: 2 })

const withNotes = (notes: string): Message => ({
  role: 'user',
  content: `Find it.\n\nWhat you have done so far, in your own notes:\n\n${notes}`,
})

describe('summariseContext', () => {
  test.each([undefined, 10, 1000])(
    'sends the whole conversation if its last prompt had %s tokens',
    async (promptTokens) => {
      const { view, requests } = contextView(after(4), { promptTokens })
      expect(await policy(view)).toBe(view.messages)
      expect(requests).toEqual([])
    },
  )

  test('replaces the beginning with a summary, cut before a reply', async () => {
    const messages = after(4)
    const before = structuredClone(messages)
    const { view, requests } = contextView(messages, {
      promptTokens: 1001,
      answers: ['<think>hm</think>\nA and B are done. '],
    })
    const copy = await policy(view)
    expect(copy).toEqual([opening[0], withNotes('A and B are done.'), ...turns.slice(2, 4).flat()])
    expect(copy[0]).toBe(messages[0])
    copy.slice(2).forEach((message, index) => expect(message).toBe(messages[index + 6]))
    expect(messages).toEqual(before)
    expect(requests).toEqual([
      { prompt: expect.any(String), tools: [], agent: expect.any(Function), limits: { maxTurns: 1 } },
    ])
    const prompt = String(requests[0]?.prompt)
    expect(prompt).toContain(
      '### User\nFind it.\n\n### Agent\nI call a.\nCalls a with {"of":"a"}\n\n### Tool result\nresult of a',
    )
    expect(prompt).toContain('result of b')
    expect(prompt).not.toContain('result of c')
  })

  test('keeps the summary for later turns until the conversation is too long again', async () => {
    const memory = new Map<string, unknown>()
    const first = contextView(after(4), { promptTokens: 2000, memory, answers: ['notes 1'] })
    const [, notes] = await policy(first.view)
    const second = contextView(after(5), { promptTokens: 600, memory })
    const copy = await policy(second.view)
    expect(copy).toEqual([opening[0], withNotes('notes 1'), ...turns.slice(2, 5).flat()])
    expect(copy[1]).toBe(notes)
    expect(second.requests).toEqual([])
    const third = contextView(after(6), { promptTokens: 1500, memory, answers: ['notes 2'] })
    expect(await policy(third.view)).toEqual([opening[0], withNotes('notes 2'), ...turns.slice(4, 6).flat()])
    const prompt = String(third.requests[0]?.prompt)
    expect(prompt).toContain('in your own notes:\n\nnotes 1')
    expect(prompt).toContain('result of d')
    expect(prompt).not.toContain('result of a')
    expect(prompt).not.toContain('result of e')
  })

  test('does not summarise the turns to keep', async () => {
    const memory = new Map<string, unknown>()
    const short = contextView(after(2), { promptTokens: 5000, memory })
    expect(await policy(short.view)).toBe(short.view.messages)
    await policy(contextView(after(4), { promptTokens: 5000, memory, answers: ['notes'] }).view)
    // Asked again about the same turns, it has nothing to add.
    const again = contextView(after(4), { promptTokens: 5000, memory })
    expect(await policy(again.view)).toEqual([opening[0], withNotes('notes'), ...turns.slice(2, 4).flat()])
    expect([...short.requests, ...again.requests]).toEqual([])
  })

  test('conversations do not share their summaries', async () => {
    await policy(contextView(after(4), { promptTokens: 5000, answers: ['notes'] }).view)
    const other = contextView(after(4), { promptTokens: 10 })
    expect(await policy(other.view)).toBe(other.view.messages)
  })

  test('asks the given model with the given prompt', async () => {
    const { view, requests } = contextView(after(4), { promptTokens: 5000, answers: ['notes'] })
    await summariseContext({ whenTokens: 1, keepLast: 1, model: 'small', prompt: 'Shorten this.' })(view)
    expect(requests).toMatchObject([
      { model: 'small', prompt: expect.stringMatching(/^Shorten this\.\n\n<conversation>\n/) },
    ])
  })

  test('without a summary sends the whole conversation, and stops after three tries', async () => {
    const memory = new Map<string, unknown>()
    const answers = ['model_error', '<think>I do not know</think>', 'max_tokens', 'too late']
    const counts: number[] = []
    for (let round = 0; round < 5; round += 1) {
      const { view, requests } = contextView(after(4), { promptTokens: 5000, memory, answers: [...answers] })
      expect(await policy(view)).toBe(view.messages)
      counts.push(requests.length)
      answers.shift()
    }
    expect(counts).toEqual([1, 1, 1, 0, 0])
  })

  test('puts the summary into its own message if the opening does not end with a user message', async () => {
    const [system] = opening
    if (!system) throw new Error('no system message')
    const messages = [system, ...turns.slice(0, 4).flat()]
    const copy = await policy(contextView(messages, { promptTokens: 5000, answers: ['notes'] }).view)
    expect(copy.slice(0, 2)).toEqual([
      system,
      { role: 'user', content: 'What you have done so far, in your own notes:\n\nnotes' },
    ])
    const image = { type: 'image_url', image_url: { url: 'data:,' } } as const
    const shown: Message[] = [{ role: 'user', content: [image] }, ...turns.slice(0, 4).flat()]
    const [first] = await policy(contextView(shown, { promptTokens: 5000, answers: ['notes'] }).view)
    expect(first?.content).toEqual([image, { type: 'text', text: expect.stringContaining('notes') }])
  })

  test('rethrows the reason that stopped the rollout', async () => {
    const stop = new AbortController()
    const { view } = contextView(after(4), { promptTokens: 5000, signal: stop.signal, answers: ['model_error'] })
    stop.abort(new Error('time is up'))
    await expect(policy(view)).rejects.toThrow('time is up')
  })

  test('takes one turn of the agent', async () => {
    const { view, turns: taken } = contextView(after(4), { promptTokens: 5000, answers: ['notes'] })
    await policy(view)
    expect(taken()).toBe(1)
  })

  test('keeps the task after examples in the prompt', async () => {
    const prompt: Message[] = [
      { role: 'user', content: 'An example.' },
      { role: 'assistant', content: 'Done like this.' },
      { role: 'user', content: 'The task.' },
    ]
    const messages = [...prompt, ...turns.slice(0, 4).flat()]
    const { view } = contextView(messages, { promptTokens: 5000, openingLength: 3, answers: ['notes'] })
    const copy = await policy(view)
    expect(copy.slice(0, 2)).toEqual(prompt.slice(0, 2))
    expect(copy[2]?.content).toMatch(/^The task\.\n\n.*\n\nnotes$/)
    expect(copy.slice(3)).toEqual(turns.slice(2, 4).flat())
    // The examples are no turns: with two of its own it has none to spare.
    const short = contextView([...prompt, ...turns.slice(0, 2).flat()], { promptTokens: 5000, openingLength: 3 })
    expect(await policy(short.view)).toBe(short.view.messages)
    expect(short.requests).toEqual([])
  })

  test.each([
    ['whose thoughts never end', '<think>First I need to', 'stop'],
    ['that began to think again', '<think>a</think>Notes: <think>or rather', 'stop'],
    ['that was cut at its length', 'A is done, B is', 'length'],
  ] as const)('does not use a reply %s as a summary', async (_what, answer, finishReason) => {
    const { view, requests } = contextView(after(4), { promptTokens: 5000, answers: [answer], finishReason })
    expect(await policy(view)).toBe(view.messages)
    expect(requests).toHaveLength(1)
  })

  test.each([
    { whenTokens: 0, keepLast: 1 },
    { whenTokens: 100, keepLast: 0 },
  ])('refuses %j', (options) => {
    expect(() => summariseContext(options)).toThrow(expect.objectContaining({ code: 'env_invalid' }))
  })
})
