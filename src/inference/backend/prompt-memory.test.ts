import { describe, expect, test } from 'vitest'
import { seededRandom } from '../../kit/index.ts'
import { PromptMemory } from './prompt-memory.ts'
import { ReplyBytes } from './exchange.ts'
import { scanReply } from '../../apis/tokens/token-scanner.ts'

const replyWith = (ids: readonly number[], separator = ','): Buffer =>
  Buffer.from(`{"choices":[{"token_ids":[7,8]}],"prompt_token_ids":[${ids.join(separator)}],"id":"a"}`)

const bodyOf = (...chunks: readonly Buffer[]): ReplyBytes => {
  const body = new ReplyBytes()
  for (const chunk of chunks) body.push(chunk)
  return body
}

const upTo = (count: number, from = 100): number[] => Array.from({ length: count }, (_, index) => from + index)

describe('a session whose prompts grow', () => {
  test('gives the same result as a scan without memory', () => {
    const random = seededRandom(7)
    const below = (limit: number): number => Math.floor(random() * limit)
    // So small that sessions are forgotten and begin again.
    const memory = new PromptMemory(6_000)
    const conversations = Array.from({ length: 12 }, () => upTo(below(40)))
    let grown = 0
    for (let round = 0; round < 4_000; round += 1) {
      const which = below(conversations.length)
      const ids = conversations[which] as number[]
      // A turn goes on, is asked again, goes back, or is another one; a number may begin with the one that was last.
      const kind = below(10)
      if (kind < 6) ids.push(...Array.from({ length: below(12) }, () => below(3) * 10 ** below(5)))
      else if (kind < 8) ids.splice(below(ids.length + 1))
      else if (kind === 8 && ids.length > 0) ids[ids.length - 1] = (ids.at(-1) as number) * 10
      if (ids.length > 200) ids.length = 10
      const reply = replyWith(ids, below(4) === 0 ? ', ' : ',')
      const session = `s${which % 5}`
      if (memory.knownBytes(session, bodyOf(reply)) > 0) grown += 1
      const { tokens, rest } = memory.scan(session, reply)
      const plain = scanReply(reply)
      expect(Array.from(tokens.promptIds ?? [])).toEqual(ids)
      expect(tokens.ids).toEqual(plain.tokens.ids)
      expect(rest).toBe(plain.rest)
    }
    expect(grown).toBeGreaterThan(500)
  })

  test('ids already returned stay unchanged, and long lists share memory', () => {
    const memory = new PromptMemory()
    const prompts = [50, 60, 70, 80].map((count) => memory.scan('s', replyWith(upTo(count))).tokens.promptIds)
    expect(prompts.map((ids) => Array.from(ids ?? []))).toEqual([50, 60, 70, 80].map((count) => upTo(count)))
    expect(prompts[3]?.buffer).toBe(prompts[2]?.buffer)
  })

  test('ids whose buffer was transferred are read again', () => {
    const memory = new PromptMemory()
    const first = memory.scan('s', replyWith(upTo(50))).tokens.promptIds
    first?.buffer.transfer()
    const again = memory.scan('s', replyWith(upTo(60))).tokens.promptIds
    expect(Array.from(again ?? [])).toEqual(upTo(60))
  })

  test('a list that is broken after its known part is not accepted', () => {
    const memory = new PromptMemory()
    memory.scan('s', replyWith([1, 2]))
    for (const bad of ['[1,2,]', '[1,2 3]', '[1,2', '[1,2,x]', '[1,2}']) {
      const bytes = Buffer.from(`{"prompt_token_ids":${bad},"id":1}`)
      expect(memory.scan('s', bytes)).toEqual(scanReply(bytes))
    }
  })
})

describe('the known part of a reply', () => {
  test('is the prompt of the same session, in any number of chunks', () => {
    const memory = new PromptMemory()
    memory.scan('s', replyWith(upTo(50)))
    const reply = replyWith(upTo(60))
    const length = upTo(50).join(',').length
    expect(memory.knownBytes('s', bodyOf(reply.subarray(0, 70), reply.subarray(70)))).toBe(length)
    expect(memory.knownBytes('another', bodyOf(reply))).toBe(0)
    expect(memory.knownBytes('s', bodyOf(Buffer.from('{"choices":[]}')))).toBe(0)
  })

  test('includes ids read by another thread, and is dropped with the session', () => {
    const memory = new PromptMemory()
    memory.learn('s', Buffer.from(upTo(50).join(',')), Int32Array.from(upTo(50)))
    expect(memory.knownBytes('s', bodyOf(replyWith(upTo(60))))).toBeGreaterThan(0)
    memory.forget('s')
    expect(memory.knownBytes('s', bodyOf(replyWith(upTo(60))))).toBe(0)
  })

  test('is not searched if it could not reach the required length', () => {
    const memory = new PromptMemory()
    memory.scan('s', replyWith(upTo(50)))
    const length = upTo(50).join(',').length
    const body = bodyOf(replyWith(upTo(60)))
    expect(memory.knownBytes('s', body, length)).toBe(0)
    expect(memory.knownBytes('s', body, length - 1)).toBe(length)
  })

  test('is kept while its conversation continues, however many others begin beside it', () => {
    const memory = new PromptMemory()
    for (let turn = 1; turn <= 10; turn += 1) {
      memory.scan('s', replyWith(upTo(50 + turn)))
      memory.scan('s', replyWith(upTo(50, 1_000 * turn)))
    }
    expect(memory.knownBytes('s', bodyOf(replyWith(upTo(70))))).toBeGreaterThan(0)
  })

  test('of a conversation that another thread reads turn by turn is kept once', () => {
    const memory = new PromptMemory()
    const learn = (ids: readonly number[]): void => memory.learn('s', Buffer.from(ids.join(',')), Int32Array.from(ids))
    learn(upTo(50, 9_000))
    for (let turn = 1; turn <= 10; turn += 1) learn(upTo(50 + turn))
    expect(memory.knownBytes('s', bodyOf(replyWith(upTo(60, 9_000))))).toBeGreaterThan(0)
    expect(memory.knownBytes('s', bodyOf(replyWith(upTo(70))))).toBe(upTo(60).join(',').length)
  })

  test('is dropped for sessions unused for a long time', () => {
    const memory = new PromptMemory(20_000)
    memory.scan('early', replyWith(upTo(200)))
    for (let each = 0; each < 40; each += 1) memory.scan(`s${each}`, replyWith(upTo(200)))
    expect(memory.knownBytes('early', bodyOf(replyWith(upTo(200))))).toBe(0)
    expect(memory.knownBytes('s39', bodyOf(replyWith(upTo(200))))).toBeGreaterThan(0)
  })
})
