import { describe, expect, test } from 'vitest'
import type { ContextPolicy, ContextView } from '../../env/index.ts'
import type { Message } from '../../schema/index.ts'
import { ContextCopy, type ContextDelta } from './context-copy.ts'

const say = (content: string): Message => ({ role: 'user', content })

function copyWith(policy: ContextPolicy) {
  const recorded: ContextDelta[] = []
  const messages: Message[] = []
  const copy = new ContextCopy(policy, (made) => recorded.push(made))
  const view: ContextView = {
    messages,
    promptTokens: undefined,
    openingLength: 1,
    isToolResult: () => false,
    memory: new Map(),
    child: () => Promise.reject(new Error('no children here')),
    signal: new AbortController().signal,
  }
  return { recorded, messages, next: (turn: number) => copy.next(view, turn) }
}

describe('ContextCopy', () => {
  test('a context policy without changes is not recorded', async () => {
    const { recorded, messages, next } = copyWith(({ messages: all }) => all)
    messages.push(say('a'), say('b'))
    expect(await next(0)).toEqual([say('a'), say('b')])
    messages.push(say('c'))
    await next(1)
    expect(recorded).toEqual([])
  })

  test('a copy is recorded unless it is the previous copy plus the new messages', async () => {
    const stub = say('left out')
    const { recorded, messages, next } = copyWith(({ messages: all }) =>
      all.length < 4 ? all : all.map((message, index) => (index === 1 ? stub : message)),
    )
    messages.push(say('a'), say('b'), say('c'))
    await next(0)
    messages.push(say('d'))
    expect(await next(1)).toEqual([say('a'), stub, say('c'), say('d')])
    messages.push(say('e'))
    expect(await next(2)).toEqual([say('a'), stub, say('c'), say('d'), say('e')])
    expect(recorded).toEqual([{ turn: 1, same: 1, sent: [stub, [2, 3]] }])
  })

  test('omitted messages are absent from the recorded ranges', async () => {
    const { recorded, messages, next } = copyWith(({ messages: all }) => all.filter((_, index) => index !== 2))
    messages.push(say('a'), say('b'), say('c'), say('d'))
    await next(0)
    expect(recorded).toEqual([{ turn: 0, same: 2, sent: [[3, 3]] }])
  })
})
