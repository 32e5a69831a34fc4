import { describe, expect, test } from 'vitest'
import { emptyUsage, type Message, type MessageNode } from '../schema/index.ts'
import { RecordedTurns } from './recorded-session.ts'

const call = {
  model: 'm',
  backend: 'b',
  finishReason: 'stop' as const,
  usage: emptyUsage(),
  cost: 0,
  tries: 1,
  ms: 1,
  waitMs: 0,
}

/** `u` said by a user, `a` a reply, `t` the answer of a tool; each with its place as its content. */
function nodes(kinds: string): MessageNode[] {
  return Array.from(kinds, (kind, seq): MessageNode => {
    const common = { seq, parent: seq === 0 ? null : seq - 1, hash: String(seq), at: 0 }
    const content = String(seq)
    if (kind === 'a') return { ...common, message: { role: 'assistant', content }, sampled: true, call }
    if (kind === 'u') return { ...common, message: { role: 'user', content }, sampled: false }
    const message: Message = { role: 'tool', tool_call_id: 'c', content }
    return { ...common, message, sampled: false, tool: { name: 'look', status: 'ok', ms: 0 } }
  })
}

const end = { code: 'model_server_error', message: 'it broke here' } as const

describe('a recorded session', () => {
  test('returns replies by turn, and answers by their place in the turn', () => {
    const turns = new RecordedTurns({ nodes: nodes('utauattuat') })
    expect(turns.answer(0)?.seq).toBe(1)
    expect([turns.nextReply()?.seq, turns.answer(0)]).toEqual([2, undefined])
    expect(turns.nextReply()?.seq).toBe(4)
    expect([turns.answer(0)?.seq, turns.answer(1)?.seq, turns.answer(2)?.seq]).toEqual([5, 6, undefined])
    turns.noteAnswer({ role: 'tool', tool_call_id: 'c', content: '5' })
    expect(turns.answer(0)?.seq).toBe(6)
    expect([turns.nextReply()?.seq, turns.answer(0)?.seq]).toEqual([8, 9])
  })

  test('with an open end returns nothing after its last turn', () => {
    const turns = new RecordedTurns({ nodes: nodes('ua') })
    expect([turns.isWithin, turns.nextReply()?.seq, turns.isWithin]).toEqual([true, 1, true])
    expect([turns.nextReply(), turns.isWithin, turns.answer(0)]).toEqual([undefined, false, undefined])
  })

  test('with a recorded end throws that end, and only after its last turn', () => {
    const turns = new RecordedTurns({ nodes: nodes('uaa'), end })
    turns.nextReply()
    expect(() => turns.answer(0)).toThrow('in turn 1 a tool was called whose answer is not in the recording')
    turns.nextReply()
    expect(() => turns.answer(0)).toThrow('it broke here')
    expect(() => turns.nextReply()).toThrow('it broke here')
  })

  test('that ends during calls is reported as cut off when the calls come', () => {
    for (const [kinds, answers] of [
      ['uata', 0],
      ['uatat', 1],
    ] as const) {
      const turns = new RecordedTurns({ nodes: nodes(kinds), end })
      turns.nextReply()
      expect(turns.cutOff).toBeUndefined()
      turns.nextReply()
      for (let given = 0; given < answers; given += 1) {
        expect(turns.cutOff).toBeUndefined()
        turns.noteAnswer({ role: 'tool', tool_call_id: 'c', content: 'any' })
      }
      expect(turns.cutOff?.rawMessage).toBe('it broke here')
    }
    const unexpected = { code: 'replay_diverged', message: 'it asks for more' } as const
    // Heard and put in an agent's own words, perhaps; or it ended there by itself.
    for (const recording of [
      { nodes: nodes('uau'), end },
      { nodes: nodes('ua'), end: unexpected },
      { nodes: nodes('ua') },
    ]) {
      const turns = new RecordedTurns(recording)
      turns.nextReply()
      expect(turns.cutOff).toBeUndefined()
    }
  })

  test('that is continued accepts only the recorded answers', () => {
    const other: Message = { role: 'tool', tool_call_id: 'c', content: 'another' }
    const open = new RecordedTurns({ nodes: nodes('uata') })
    open.nextReply()
    expect(() => open.noteAnswer(other)).toThrow('look ran again for turn 1 and gave a different answer')
    // A replay compares afterwards, and says more.
    const closed = new RecordedTurns({ nodes: nodes('uata'), end })
    closed.nextReply()
    expect(() => closed.noteAnswer(other)).not.toThrow()
  })
})
