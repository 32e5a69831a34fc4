import { describe, expect, test } from 'vitest'
import type { AssistantMessage, Message } from '../schema/index.ts'
import { driftedTokens, TokenHistory } from './token-history.ts'

const ids = (...numbers: readonly number[]): Int32Array => Int32Array.from(numbers)
const user = (content: string): Message => ({ role: 'user', content })

test.each([
  [ids(1, 2, 3, 4), 0],
  [ids(1, 2, 3, 4, 5), 0],
  [ids(1, 2, 3), 1],
  [ids(1, 2, 3, 9, 4), 1],
  [ids(1, 2, 9, 4, 5), 2],
  [ids(1, 9, 3, 4, 5), 3],
  [ids(), 4],
])('a later prompt %o lacks %i tokens of the earlier turn', (prompt, drifted) => {
  expect(driftedTokens({ promptIds: ids(1, 2), ids: ids(3, 4) }, prompt)).toBe(drifted)
})

interface Asked {
  readonly asked?: readonly Message[]
  readonly length?: number
  readonly output?: number
}

/** A conversation whose turns are noted with these tokens. */
class Talk {
  readonly history = new TokenHistory()
  readonly messages: Message[] = []

  reply(
    promptIds: Int32Array | undefined,
    reply: Int32Array,
    { asked = this.messages, length, output = reply.length }: Asked = {},
  ) {
    const message: AssistantMessage = { role: 'assistant', content: `reply ${this.messages.length}` }
    const usage = { calls: 1, input: 1, cachedInput: 0, output, reasoning: 0 }
    const tokens = { ids: reply, logprobs: new Float32Array(reply.length), ...(promptIds && { promptIds }) }
    const noted = this.history.note({
      messages: asked,
      length: length ?? asked.length,
      reply: { message, tokens, usage },
    })
    this.messages.push(message)
    return noted
  }

  say(...texts: readonly string[]): void {
    this.messages.push(...texts.map(user))
  }
}

describe('TokenHistory', () => {
  test('compares each prompt with the turn before it', () => {
    const talk = new Talk()
    talk.say('one')
    expect(talk.reply(ids(1), ids(2))).toEqual({ captured: 1 })
    talk.say('two')
    expect(talk.reply(ids(1, 2, 3), ids(4))).toEqual({ captured: 1, laterTurns: 1 })
    talk.say('three')
    // The third token is another one: it, and the fourth, are not in the new row.
    const drifted = { captured: 1, laterTurns: 1, driftedTurns: 1, driftedTokens: 2 }
    expect(talk.reply(ids(1, 2, 9, 4, 5), ids(6))).toEqual(drifted)
    talk.say('four')
    expect(talk.reply(ids(1, 2, 9, 4, 5, 6, 7), ids(8))).toEqual({ captured: 1, laterTurns: 1 })
  })

  test('a reply without all its tokens leaves the one before it in its place', () => {
    const talk = new Talk()
    talk.say('one')
    talk.reply(ids(1), ids(2))
    talk.say('two')
    expect(talk.reply(ids(1, 2, 3), ids(4), { output: 2 })).toEqual({ captured: 0 })
    expect(talk.reply(undefined, ids(4))).toEqual({ captured: 1 })
    talk.say('three')
    expect(talk.reply(ids(1, 2, 3, 7, 8), ids(9))).toEqual({ captured: 1, laterTurns: 1 })
  })

  test('a history that a policy made anew begins a new conversation', () => {
    const talk = new Talk()
    talk.say('one')
    talk.reply(ids(1), ids(2))
    talk.say('two')
    talk.reply(ids(1, 2, 3), ids(4))
    const notes = [user('notes')]
    expect(talk.reply(ids(7), ids(8), { asked: notes })).toEqual({ captured: 1 })
    // From here on the copy only grows. The policy may make its message anew.
    const copy = [user('notes'), talk.messages.at(-1) as Message, user('go on')]
    expect(talk.reply(ids(7, 8, 9), ids(10), { asked: copy })).toEqual({ captured: 1, laterTurns: 1 })
  })

  test('a history that differs from some point on follows the last reply before that point', () => {
    const talk = new Talk()
    talk.say('one')
    talk.reply(ids(1), ids(2))
    talk.say('long result')
    talk.reply(ids(1, 2, 3), ids(4))
    const stubbed = [...talk.messages.slice(0, 2), user('stub'), ...talk.messages.slice(3)]
    expect(talk.history.before(stubbed)).toEqual({ count: 2, promptIds: ids(1), ids: ids(2) })
    expect(talk.reply(ids(1, 2, 5, 4, 6), ids(7), { asked: stubbed })).toEqual({ captured: 1, laterTurns: 1 })
    // The replies behind a token that changed are forgotten, as no prompt can begin with them any more.
    const again = [...stubbed, talk.messages.at(-1) as Message, user('more')]
    expect(talk.reply(ids(1, 9, 5, 4, 6, 7, 8), ids(0), { asked: again })).toMatchObject({ driftedTokens: 5 })
    expect(talk.history.before(talk.messages.slice(0, 3))).toBeUndefined()
  })

  test('of two turns that were asked at once neither follows the other', () => {
    const talk = new Talk()
    talk.say('one')
    talk.reply(ids(1), ids(2))
    talk.say('two')
    const { length } = talk.messages
    expect(talk.reply(ids(1, 2, 3), ids(4), { length })).toEqual({ captured: 1, laterTurns: 1 })
    expect(talk.reply(ids(1, 2, 3), ids(5), { length })).toEqual({ captured: 1, laterTurns: 1 })
  })
})
