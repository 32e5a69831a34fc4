import { describe, expect, test } from 'vitest'
import { seededRandom } from '../../kit/index.ts'
import { scanReply, type TokenArrays } from './token-scanner.ts'

type Random = () => number

const pick = <Value>(random: Random, values: readonly Value[]): Value =>
  values[Math.floor(random() * values.length)] as Value
const upTo = (random: Random, limit: number): number => Math.floor(random() * (limit + 1))
const times = <Value>(count: number, make: () => Value): Value[] => Array.from({ length: count }, make)

/** Texts made to look like structure: keys of the scanner, brackets, quotes, escapes, characters of every length. */
const pieces = ['token_ids', '":[1,2]', '{', '}', '[', ']', ',', '"', '\\', '\\"', '\n', '\u0000', 'é', '漢', '🙂', ' ']
const text = (random: Random): string => times(upTo(random, 6), () => pick(random, pieces)).join('')

function anything(random: Random, depth = 0): unknown {
  const kind = upTo(random, depth > 3 ? 4 : 6)
  if (kind === 0) return text(random)
  if (kind === 1) return (random() - 0.5) * 10 ** upTo(random, 30)
  if (kind === 2) return upTo(random, 200_000)
  if (kind === 3) return pick(random, [true, false, null])
  if (kind === 4) return text(random)
  if (kind === 5) return times(upTo(random, 3), () => anything(random, depth + 1))
  return Object.fromEntries(
    times(upTo(random, 3), () => [
      pick(random, ['token_ids', 'logprobs', 'content', 'choices', 'logprob', text(random)]),
      anything(random, depth + 1),
    ]),
  )
}

const idList = (random: Random): unknown => {
  const list: unknown[] = times(upTo(random, 20), () => upTo(random, 200_000))
  // Now and then something that is no id, or written in another way.
  if (random() < 0.1) list.push(pick(random, [1.5, -1, 2 ** 31, 1e21, null, 'x', [1], true]))
  return random() < 0.1 ? anything(random) : list
}

const logprobList = (random: Random): unknown => {
  const list: unknown[] = times(upTo(random, 20), () => ({
    ...(random() < 0.8 && { token: text(random) }),
    ...(random() < 0.98 && { logprob: random() < 0.98 ? -(random() ** 8) * 20 : anything(random) }),
    bytes: times(upTo(random, 3), () => upTo(random, 255)),
    top_logprobs: random() < 0.9 ? [] : [anything(random)],
  }))
  return random() < 0.05 ? anything(random) : list
}

const expertList = (random: Random): unknown => {
  const layers = upTo(random, 3)
  const top = upTo(random, 3)
  const most = pick(random, [100, 300, 70_000])
  const list: unknown[] = times(upTo(random, 4), () => times(layers, () => times(top, () => upTo(random, most))))
  if (random() < 0.1) list.push(pick(random, [[[1, 2, 3, 4, 5]], [], 1, [[1.5]], null]))
  return list
}

function document(random: Random): unknown {
  const choice = {
    index: 0,
    message: { role: 'assistant', content: text(random), extra: anything(random) },
    ...(random() < 0.9 && { token_ids: idList(random) }),
    ...(random() < 0.9 && { logprobs: random() < 0.9 ? { content: logprobList(random) } : anything(random) }),
    ...(random() < 0.3 && { routed_experts: expertList(random) }),
    finish_reason: 'stop',
  }
  const body = {
    id: text(random),
    ...(random() < 0.5 && { prompt_token_ids: idList(random) }),
    choices: random() < 0.95 ? [choice, ...(random() < 0.2 ? [choice] : [])] : anything(random),
    usage: anything(random),
  }
  return random() < 0.97 ? body : anything(random)
}

/** The same value in other words: spaces, escaped characters, keys that come twice. */
function written(random: Random, value: unknown): string {
  const json = JSON.stringify(value, null, pick(random, [undefined, undefined, 1, '\t'])) ?? 'null'
  if (random() < 0.1) return json.replace(/"token_ids":/, '"token_ids":[9],"token_ids":')
  if (random() < 0.1) return json.replace('"token_ids"', '"token\\u005fids"')
  if (random() < 0.1) return json.replaceAll('"logprob":', '"logprob":-1.5,"logprob":')
  const twice = pick(random, ['token_ids', 'logprob', 'content', 'choices', 'prompt_token_ids'])
  if (random() < 0.1) return json.replace(`"${twice}":`, `"${twice}":[9],"${twice.replace('o', '\\u006f')}":`)
  return json
}

/** Somebody cut it, or flipped something. */
function spoiled(random: Random, bytes: Buffer): Buffer {
  const at = upTo(random, bytes.length - 1)
  if (random() < 0.4) return bytes.subarray(0, at)
  const copy = Buffer.from(bytes)
  copy[at] = pick(random, [0x22, 0x2c, 0x5d, 0x7d, 0x5c, 0x30, 0x2e, 0x00, 0x80, 0x20])
  return copy
}

const parsed = (json: string): { value?: unknown } => {
  try {
    return { value: JSON.parse(json) as unknown }
  } catch {
    return {}
  }
}

interface ReplyWire {
  prompt_token_ids?: unknown
  choices?: { token_ids?: unknown; logprobs?: { content?: unknown }; routed_experts?: unknown }[]
}

/** Puts back into the rest what was taken out of it. */
function restored(rest: unknown, { promptIds, ids, logprobs, routedExperts }: TokenArrays, whole: unknown): unknown {
  if (!promptIds && !ids && !logprobs && !routedExperts) return rest
  const body = rest as ReplyWire
  const original = whole as ReplyWire
  const choice = body.choices?.[0]
  const given = original.choices?.[0]
  if (promptIds) body.prompt_token_ids = Array.from(promptIds)
  if (choice && ids) choice.token_ids = Array.from(ids)
  if (choice && logprobs) {
    const entries = (given?.logprobs?.content ?? []) as { logprob: number }[]
    expect(Array.from(logprobs)).toEqual(entries.map(({ logprob }) => Math.fround(logprob)))
    choice.logprobs = { ...choice.logprobs, content: entries }
  }
  if (choice && routedExperts) {
    const flat = ((given?.routed_experts ?? []) as number[][][]).flat(2)
    expect(Array.from(routedExperts.experts)).toEqual(flat)
    expect(routedExperts.shape.reduce((product, size) => product * size, 1)).toBe(flat.length)
    choice.routed_experts = given?.routed_experts
  }
  return body
}

describe('a scan', () => {
  test('and its rest together give the same document as JSON.parse', () => {
    let taken = 0
    for (let seed = 0; seed < 6_000; seed += 1) {
      const random = seededRandom(seed)
      const whole = Buffer.from(written(random, document(random)))
      const bytes = random() < 0.4 ? spoiled(random, whole) : whole
      const expected = parsed(bytes.toString('utf8'))
      const { rest, tokens } = scanReply(bytes)
      const found = parsed(rest)
      const put = 'value' in found ? { value: restored(found.value, tokens, expected.value) } : {}
      expect(put, `seed ${seed}: ${bytes.toString('utf8')}`).toEqual(expected)
      taken += Object.values(tokens).filter((list) => list !== undefined).length
    }
    // It must not pass because nothing was taken.
    expect(taken).toBeGreaterThan(5_000)
  })

  test('reads tokens in the usual format', () => {
    const body = {
      prompt_token_ids: [],
      choices: [{ token_ids: [0, 2 ** 31 - 1], logprobs: { content: [{ logprob: -0.5 }, { logprob: -0 }] } }],
    }
    const { rest, tokens } = scanReply(Buffer.from(JSON.stringify(body, null, 2)))
    expect(tokens).toEqual({
      promptIds: new Int32Array(),
      ids: Int32Array.of(0, 2 ** 31 - 1),
      logprobs: Float32Array.of(-0.5, 0),
    })
    expect(JSON.parse(rest)).toEqual({ choices: [{ logprobs: null }] })
  })

  const ids = (name: string): string => `"${name}":[1,2]`
  test.each([
    ['first', `{${ids('prompt_token_ids')},"id":"a"}`, '{"id":"a"}'],
    ['last', `{"id":"a" , ${ids('prompt_token_ids')} }`, '{"id":"a"  }'],
    ['alone', `{ ${ids('prompt_token_ids')} }`, '{  }'],
    ['several, first', `{"choices":[{${ids('token_ids')},"routed_experts":[[[1]]],"a":1}]}`, '{"choices":[{"a":1}]}'],
    ['several, last', `{"choices":[{"a":1,${ids('token_ids')},\n"routed_experts":[[[1]]]}]}`, '{"choices":[{"a":1}]}'],
    ['several, alone', `{"choices":[{${ids('token_ids')},"routed_experts":[[[1]]]}]}`, '{"choices":[{}]}'],
    [
      'around others',
      `{${ids('prompt_token_ids')},"choices":[{"a":1,${ids('token_ids')},"b":2}],"c":3}`,
      '{"choices":[{"a":1,"b":2}],"c":3}',
    ],
    [
      'log-probabilities',
      '{"choices":[{"logprobs":{"content":[{"logprob":-1}],"refusal":null}}]}',
      '{"choices":[{"logprobs":{"refusal":null}}]}',
    ],
  ])('keeps the bytes around the tokens: %s', (_place, json, left) => {
    expect(scanReply(Buffer.from(json)).rest).toBe(left)
  })

  test.each([
    ['a text that looks like a list', '{"choices":[{"message":{"content":"\\",\\"token_ids\\":[1,2]"}}]}'],
    ['the same key further down', '{"choices":[{"message":{"token_ids":[1,2]}}],"usage":{"prompt_token_ids":[1]}}'],
    ['a choice that is not the first', '{"choices":[{},{"token_ids":[1,2]}]}'],
    ['a key that comes again with an escape', '{"choices":[{"token_ids":[1],"token\\u005fids":[2]}]}'],
    ['a key that comes twice', '{"prompt_token_ids":[1],"id":"a","prompt_token_ids":[2]}'],
    ['a list after another value of its key', '{"choices":[{"token_ids":"none","token_ids":[2]}]}'],
    ['experts in an object that comes again', '{"choices":[{"meta_info":{"routed_experts":[[[1]]]},"meta_info":{}}]}'],
    ['the same in an entry', '{"choices":[{"logprobs":{"content":[{"logprob":-1,"log\\u0070rob":-2}]}}]}'],
    ['lists below the top', '[{"choices":[{"token_ids":[1,2]}]}]'],
  ])('is not misled by %s', (_name, json) => {
    expect(scanReply(Buffer.from(json))).toEqual({ tokens: {}, rest: json })
  })

  test.each([
    '[}]',
    '[{]',
    '[{"logprob":1}}]',
    '[{"logprob":1},]',
    '[{"logprob":1},}]',
    '[{"logprob":1},{"logprob":2]',
  ])('does not read %s as log-probabilities', (content) => {
    const json = `{"choices":[{"logprobs":{"content":${content}}}]}`
    expect(scanReply(Buffer.from(json))).toEqual({ tokens: {}, rest: json })
  })

  test('leaves a document with very deep nesting unchanged', () => {
    const json = `{"choices":[{"token_ids":[1]}],"deep":${'['.repeat(5_000)}${']'.repeat(5_000)}}`
    expect(scanReply(Buffer.from(json))).toEqual({ tokens: {}, rest: json })
  })
})

test('a log-probability is the 32-bit float nearest to its text', () => {
  const random = seededRandom(7)
  const texts = times(20_000, () => {
    const value = -random() * 10 ** (random() * 12 - 9)
    const float = Math.fround(value)
    return pick(random, [
      String(value),
      String(float),
      value.toFixed(upTo(random, 24)),
      value.toPrecision(1 + upTo(random, 19)),
      // Halfway between two floats, where rounding is decided by the last digit.
      String((float + Math.fround(float * (1 + 2 ** -23))) / 2),
      '-0.0',
    ])
  })
  const entries = texts.map((each) => `{"token":"a","logprob":${each}}`)
  const { tokens } = scanReply(Buffer.from(`{"choices":[{"logprobs":{"content":[${entries.join(',')}]}}]}`))
  expect(tokens.logprobs).toEqual(Float32Array.from(texts, Number))
})
