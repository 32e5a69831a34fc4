import { describe, expect, test } from 'vitest'
import { chatServer, type DialectRequest } from '../../apis/index.ts'
import { seededRandom } from '../../kit/index.ts'
import { BodyMemoryBudget, LastBody, type ContinuedBody } from './last-body.ts'
import { parsedMembers } from '../../endpoint/index.ts'

const plenty = 1_000_000

/** Reads bodies as the gateway does for one session. */
class Reader {
  readonly last: LastBody<number>
  /** How many messages of the last body were known. */
  known = 0

  readonly #allowance: BodyMemoryBudget
  #reads = 0
  /** The number of the last body that was not too short. */
  #lastLong = 0

  constructor(allowance = new BodyMemoryBudget(plenty)) {
    this.#allowance = allowance
    this.last = new LastBody(allowance)
  }

  /** What it has taken of the allowance. */
  get held(): number {
    let free = 0
    for (let step = 2 ** 20; step >= 1; step /= 2) {
      if (!this.#allowance.take(free + step)) continue
      this.#allowance.giveBack(free + step)
      free += step
    }
    return plenty - free
  }

  read(text: string): DialectRequest {
    const body = Buffer.from(text)
    const continued = this.last.continuedBy(body)
    this.known = continued?.known.length ?? 0
    const request = readAfter(text, continued)
    if (continued) expect(continued.end).toBe(this.#lastLong)
    this.#reads += 1
    if (body.length >= 4096) this.#lastLong = this.#reads
    this.last.keep(body, { request, end: this.#reads, continued })
    return request
  }
}

function readAfter(text: string, continued?: ContinuedBody<number>): DialectRequest {
  return chatServer.read(parsedMembers('chat', continued?.text ?? text), { messages: continued?.known })
}

const user = (content: string) => JSON.stringify({ role: 'user', content })
/** Shorter ones are not worth it. */
const long = `"user":"${'x'.repeat(4096)}",`
const bodyOf = (messages: readonly string[], { head = '"model":"m",', tail = '' } = {}) =>
  `{${long}${head}"messages":[${messages.join(',')}]${tail}}`

describe('a body that extends the previous one', () => {
  test('is read only from the new part on', () => {
    const reader = new Reader()
    const messages = [user('one "two" [three] {four}')]
    for (let turn = 0; turn < 20; turn += 1) {
      const { messages: read } = reader.read(bodyOf(messages))
      expect(read).toEqual(messages.map((message) => JSON.parse(message)))
      expect(reader.known).toBe(turn === 0 ? 0 : messages.length - 2)
      messages.push(JSON.stringify({ role: 'assistant', content: `reply ${turn} é` }), user('go on'))
    }
    expect(reader.read(bodyOf(messages.slice(0, -2))).messages).toHaveLength(messages.length - 2)
    expect(reader.known).toBe(messages.length - 2)
  })

  test('may have its messages first, and long fields after them', () => {
    const reader = new Reader()
    const messages: string[] = []
    for (let turn = 0; turn < 6; turn += 1) {
      messages.push(user(`turn ${turn}`))
      const tail = `"messages":[${messages.join(',')}],"model":"m","user":"${'x'.repeat(8_000)}"`
      expect(reader.read(`{${tail}}`).messages).toHaveLength(messages.length)
      expect(reader.known).toBe(turn)
    }
  })

  test('may follow a short body of another conversation', () => {
    const reader = new Reader()
    for (let turn = 1; turn < 6; turn += 1) {
      const messages = Array.from({ length: turn }, (_, index) => user(`turn ${index}`))
      expect(reader.read(bodyOf(messages)).messages).toHaveLength(turn)
      expect(reader.known).toBe(turn - 1)
      expect(reader.read(`{"model":"m","messages":[${user('aside')}]}`).messages).toHaveLength(1)
      expect(reader.known).toBe(0)
    }
  })

  test('may differ in the fields after its messages', () => {
    const reader = new Reader()
    reader.read(bodyOf([user('a')], { tail: ',"temperature":0.5,"stop":["]","}"]' }))
    const { messages, sampling } = reader.read(bodyOf([user('a'), user('b')], { tail: ' , "temperature" : 1 ' }))
    expect(reader.known).toBe(1)
    expect(messages).toHaveLength(2)
    expect(sampling.temperature).toBe(1)
  })

  test('is refused with the same paths', () => {
    const reader = new Reader()
    reader.read(bodyOf([user('a'), user('b')]))
    const text = bodyOf([user('a'), user('b'), '{"role":"nobody"}'])
    expect(() => reader.read(text)).toThrow(/messages\[2\]\.role/)
    expect(reader.known).toBe(2)
  })

  test.each<[string, string]>([
    ['an earlier message is another', bodyOf([user('A'), user('b'), user('c')])],
    ['what comes before the messages is another', bodyOf([user('a'), user('b')], { head: '"model":"n",' })],
    ['there are fewer messages', bodyOf([user('a')])],
    ['another list follows', bodyOf([user('a'), user('b'), user('c')], { tail: `,"messages":[${user('x')}]` })],
    ['one follows in another spelling', bodyOf([user('a'), user('b')], { tail: String.raw`,"mess\u0061ges":[]` })],
  ])('%s: the body is read as a whole', (_, text) => {
    const reader = new Reader()
    reader.read(bodyOf([user('a'), user('b')]))
    expect(outcomeOf(() => reader.read(text))).toEqual(outcomeOf(() => readAfter(text)))
    expect(reader.known).toBe(0)
  })

  test('invalid JSON is refused as usual', () => {
    const reader = new Reader()
    reader.read(bodyOf([user('a')]))
    for (const broken of [bodyOf([user('a'), '{']), `${bodyOf([user('a')])}x`, bodyOf([user('a')], { tail: ',1' })]) {
      expect(outcomeOf(() => reader.read(broken))).toEqual(outcomeOf(() => readAfter(broken)))
    }
  })

  test('unsupported message fields are listed in every request', () => {
    const reader = new Reader()
    const named = JSON.stringify({ role: 'system', name: 'x', content: 'a' })
    for (const messages of [[named], [named, user('b')]]) {
      expect(reader.read(bodyOf(messages)).unsupported).toEqual(['messages[0].name'])
    }
    expect(reader.held).toBe(0)
  })
})

test('any sequence of bodies gives the same result as reading each alone', () => {
  let continued = 0
  for (let seed = 0; seed < 300; seed += 1) {
    const random = seededRandom(seed)
    const reader = new Reader()
    let text = writtenBy(random, 1 + Math.floor(random() * 4))
    for (let turn = 0; turn < 12; turn += 1) {
      expect(outcomeOf(() => reader.read(text))).toEqual(outcomeOf(() => readAfter(text)))
      if (reader.known > 0) continued += 1
      text = changedBy(random, text)
    }
  }
  expect(continued).toBeGreaterThan(500)
})

describe('the memory budget', () => {
  test('is released', () => {
    const reader = new Reader()
    const messages: string[] = []
    for (let turn = 0; turn < 20; turn += 1) {
      messages.push(user('x'.repeat(500)))
      reader.read(bodyOf(messages))
    }
    expect(reader.known).toBe(19)
    expect(reader.held).toBeGreaterThan(0)
    reader.last.clear()
    expect(reader.held).toBe(0)
  })

  test('excludes a body that is too long, and drops the earlier one', () => {
    const allowance = new BodyMemoryBudget(20_000)
    const reader = new Reader(allowance)
    reader.read(bodyOf([user('short')]))
    const longer = bodyOf([user('short'), user('x'.repeat(9_000))])
    reader.read(longer)
    expect(reader.known).toBe(1)
    reader.read(longer)
    expect(reader.known).toBe(0)
    expect(allowance.take(20_000)).toBe(true)
  })

  test('shrinks when short bodies follow a long one', () => {
    const reader = new Reader()
    reader.read(bodyOf([user('x'.repeat(200_000))]))
    const { held } = reader
    reader.read(bodyOf([user('short')]))
    expect(reader.held).toBeLessThan(held / 8)
    reader.read(bodyOf([user('short'), user('more')]))
    expect(reader.known).toBe(1)
  })

  test('is not used for short bodies, or for a client that always starts a new conversation', () => {
    const reader = new Reader()
    reader.read('{"model":"m","messages":[{"role":"user","content":"a"}]}')
    expect(reader.held).toBe(0)
    for (let turn = 0; turn < 4; turn += 1) {
      expect(reader.read(bodyOf([user(`turn ${turn}`)])).messages).toHaveLength(1)
    }
    expect(reader.held).toBe(0)
  })

  test('is not used if the new conversations of a client are refused', () => {
    const reader = new Reader()
    reader.read(bodyOf([user('first')]))
    for (let turn = 0; turn < 3; turn += 1) {
      expect(() => reader.read(bodyOf([`{"role":"nobody","content":"${turn}"}`]))).toThrow(/role/)
    }
    reader.read(bodyOf([user('another')]))
    expect(reader.held).toBe(0)
  })
})

function outcomeOf(read: () => DialectRequest): unknown {
  try {
    // Of the body itself, what was read before is left out.
    const { body: _body, ...rest } = read()
    return rest
  } catch (error) {
    return String(error)
  }
}

const texts = ['', 'a', 'é𝄞', '"]}', '\\', '\n', 'messages', '{"messages":[', '漢字'.repeat(20)]

function messageBy(random: () => number): string {
  const content = texts[Math.floor(random() * texts.length)]
  const space = random() < 0.2 ? 2 : 0
  const kind = random()
  if (kind < 0.2) {
    const call = {
      id: 'c',
      type: 'function',
      function: { name: 'f', arguments: JSON.stringify({ messages: [content] }) },
    }
    return JSON.stringify({ role: 'assistant', content: null, tool_calls: [call] }, null, space)
  }
  if (kind < 0.4) {
    const image = { type: 'image_url', image_url: { url: 'data:image/png;base64,AA==' } }
    return JSON.stringify({ role: 'user', content: [{ type: 'text', text: content }, image] }, null, space)
  }
  const text = JSON.stringify({ role: kind < 0.7 ? 'user' : 'assistant', content }, null, space)
  // As some clients write everything that is not ASCII.
  return random() < 0.5
    ? text
    : text.replaceAll(/[^\0-\x7f]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)
}

function writtenBy(random: () => number, count: number): string {
  const gap = () => (random() < 0.2 ? ' \n' : '')
  const messages = Array.from({ length: count }, () => gap() + messageBy(random) + gap())
  const head =
    random() < 0.5 ? `${long}"model":"m",${gap()}` : `${gap()}"model":"m",${long}"metadata":{"messages":[1]},`
  return `${gap()}{${head}"messages"${gap()}:${gap()}[${messages.join(',')}]${gap()},"seed":1}${gap()}`
}

/** Mostly goes on; now and then anything else. */
function changedBy(random: () => number, text: string): string {
  const chance = random()
  const end = text.lastIndexOf(']')
  if (chance < 0.7) return `${text.slice(0, end)},${messageBy(random)}${text.slice(end)}`
  if (chance < 0.8)
    return text.replace(
      '"seed":1',
      `"seed":1,"${random() < 0.5 ? 'messages' : String.raw`\u006dessages`}":[${messageBy(random)}]`,
    )
  if (chance < 0.9) return writtenBy(random, 2)
  const at = Math.floor(random() * text.length)
  return text.slice(0, at) + text.slice(at + 1 + Math.floor(random() * 3))
}
