import { describe, expect, test } from 'vitest'
import type { Message } from '../../schema/index.ts'
import { contextView, toolTurn } from '../../../test/support/env/context-view.ts'
import type { ContextPolicy, ContextView } from '../define/context.ts'
import { keepToolResults } from './keep-tool-results.ts'

const opening: readonly Message[] = [
  { role: 'system', content: 'Be brief.' },
  { role: 'user', content: 'Find it.' },
]
const long = (what: string) => `${what} `.repeat(100)

function conversation(turns: number): readonly Message[] {
  return [...opening, ...Array.from({ length: turns }, (_, index) => toolTurn(`t${index}`, long(`r${index}`))).flat()]
}

async function sent(policy: ContextPolicy, messages: readonly Message[], given: Partial<ContextView> = {}) {
  return await policy(contextView(messages, given).view)
}

/** The turns whose results are stubs. */
function stubbed(messages: readonly Message[], stub: string): readonly number[] {
  return messages.filter(({ role }) => role === 'tool').flatMap(({ content }, turn) => (content === stub ? [turn] : []))
}

describe('keepToolResults', () => {
  test('replaces all results but the last ones, and no other message', async () => {
    const messages = conversation(5)
    const before = structuredClone(messages)
    const copy = await sent(keepToolResults(2, { every: 1, stub: '[gone]' }), messages)
    expect(stubbed(copy, '[gone]')).toEqual([0, 1, 2])
    copy.forEach((message, index) => {
      if (message.content === '[gone]') expect(message).toEqual({ ...messages[index], content: '[gone]' })
      else expect(message).toBe(messages[index])
    })
    expect(messages).toEqual(before)
  })

  test('sends the recorded list itself if nothing is replaced', async () => {
    const messages = conversation(3)
    expect(await sent(keepToolResults(3), messages)).toBe(messages)
    expect(await sent(keepToolResults(0), opening)).toBe(opening)
  })

  test.each([
    { every: 1, changes: [3, 4, 5, 6, 7, 8, 9, 10, 11, 12] },
    { every: 4, changes: [6, 10] },
    { every: undefined, changes: [4, 6, 8, 10, 12] },
  ])('with every: $every the prefix changes after results $changes', async ({ every, changes }) => {
    const policy = keepToolResults(2, { stub: '[gone]', ...(every !== undefined && { every }) })
    const changed: number[] = []
    let last: readonly Message[] = []
    for (let turns = 0; turns <= 12; turns += 1) {
      const copy = await sent(policy, conversation(turns))
      if (last.some((message, index) => message.content !== copy[index]?.content)) changed.push(turns)
      expect(turns - stubbed(copy, '[gone]').length).toBeGreaterThanOrEqual(Math.min(2, turns))
      last = copy
    }
    expect(changed).toEqual(changes)
  })

  test('a stub is the same object in each turn', async () => {
    const policy = keepToolResults(1, { every: 1 })
    const messages = conversation(4)
    const first = await sent(policy, messages.slice(0, -2))
    const second = await sent(policy, messages)
    expect(second[3]).toBe(first[3])
    expect(second[3]).not.toBe(messages[3])
  })

  test('keeps results that are shorter than the stub', async () => {
    const messages = [...opening, ...toolTurn('a', 'ok'), ...toolTurn('b', long('b')), ...toolTurn('c', long('c'))]
    const copy = await sent(keepToolResults(1, { every: 1, stub: '[gone]' }), messages)
    expect(copy.map(({ content }) => content).slice(3, 6)).toEqual(['ok', 'I call b.', '[gone]'])
  })

  test('counts and replaces results of text calls one by one', async () => {
    const image = { type: 'image_url', image_url: { url: 'data:image/png;base64,AA==' } } as const
    const results: Message = {
      role: 'user',
      content: [{ type: 'text', text: long('a') }, image, { type: 'text', text: long('b') }, image],
    }
    const single: Message = { role: 'user', content: long('c') }
    const isToolResult = (message: Message) => message === results || message === single
    const messages: Message[] = [
      ...opening,
      { role: 'assistant', content: '<tool_call>' },
      results,
      { role: 'assistant', content: '<tool_call>' },
      single,
      { role: 'user', content: long('a question of the user') },
    ]
    const two = await sent(keepToolResults(2, { every: 1, stub: '[gone]' }), messages, { isToolResult })
    expect(two[3]).toEqual({
      role: 'user',
      content: [{ type: 'text', text: '[gone]' }, { type: 'text', text: long('b') }, image],
    })
    const none = await sent(keepToolResults(0, { stub: '[gone]' }), messages, { isToolResult })
    expect(none[3]?.content).toEqual([
      { type: 'text', text: '[gone]' },
      { type: 'text', text: '[gone]' },
    ])
    expect(none[5]).toEqual({ role: 'user', content: '[gone]' })
    expect(none[6]).toBe(messages[6])
  })

  test.each([() => keepToolResults(-1), () => keepToolResults(1.5), () => keepToolResults(3, { every: 0 })])(
    'refuses invalid counts: %s',
    (make) => {
      expect(make).toThrow(expect.objectContaining({ code: 'env_invalid' }))
    },
  )
})
