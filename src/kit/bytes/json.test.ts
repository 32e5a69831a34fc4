import { expect, test } from 'vitest'
import { hasInexactNumber, isDeeperThan, lostNumber, parseExactly } from './json.ts'
import { seededRandom } from './numbers.ts'

test.each(['9007199254740993', '-12345678901234567890', '1e400', '-0', '3.14159265358979323846', '1e21'])(
  '%s keeps its spelling through parseExactly()',
  (number) => {
    const text = `{"a":[{"b":${number}}],"c":"${number}","d":1.5}`
    expect(hasInexactNumber(JSON.parse(text))).toBe(true)
    expect(JSON.stringify(parseExactly(text))).toBe(text)
    expect(parseExactly(text)).toMatchObject({ d: 1.5 })
  },
)

test.each(['0', '-1', '9007199254740991', '0.1', '-123.456', '1e3', '"9007199254740993"', 'null', 'true', '[]'])(
  '%s has no inexact number',
  (value) => {
    expect(hasInexactNumber(JSON.parse(`{"a":[${value}]}`))).toBe(false)
  },
)

test.each([
  ['{"a":[{"b":1},{"b":9007199254740993}]}', { path: ['a', 1, 'b'], source: '9007199254740993' }],
  ['{"a":-1e400}', { path: ['a'], source: '-1e400' }],
  ['9007199254740992', undefined],
  ['{"a":[-0,1e22,1e23,3.14159265358979323846],"b":"9007199254740993"}', undefined],
])('in %s the number that loses precision is %j', (text, lost) => {
  expect(lostNumber(text, JSON.parse(text))).toEqual(lost)
})

test('very deep nesting is not searched', () => {
  expect(hasInexactNumber(JSON.parse(`${'['.repeat(5000)}1e400${']'.repeat(5000)}`))).toBe(false)
})

test('a name such as __proto__ is treated like any other', () => {
  expect(JSON.stringify(parseExactly('{"__proto__":{"a":1e400}}'))).toBe('{"__proto__":{"a":1e400}}')
})

const deeperThan = (text: string, depth: number): boolean => isDeeperThan(Buffer.from(text), depth)

test.each([
  ['[]', 1],
  ['{"a":[1,{"b":2}],"c":[[]]}', 3],
  ['"[[[["', 0],
  [String.raw`["\"[[[", "\\", ["\\\"{{{{"]]`, 2],
  [`["${'x'.repeat(30)}\\"[[[[${'y'.repeat(40)}\\\\",[]]`, 2],
  [`["${'é'.repeat(50)}[[[","${'\\'.repeat(64)}",{}]`, 2],
])('%s is %d levels deep', (text, depth) => {
  expect(deeperThan(text, depth)).toBe(false)
  if (depth > 0) expect(deeperThan(text, depth - 1)).toBe(true)
})

test('unclosed text is not read beyond its end', () => {
  expect(deeperThan(`["${'x'.repeat(100)}`, 1)).toBe(false)
  expect(deeperThan('["\\', 1)).toBe(false)
  expect(deeperThan('['.repeat(1_000_000), 64)).toBe(true)
})

test('the depth check agrees with the structure of random values', () => {
  const random = seededRandom(7)
  const texts = ['', '"', '\\', '[{', '}]', 'plain', '\u{1f600}', `${'long '.repeat(12)}"[`]
  const make = (levels: number): unknown => {
    const pick = Math.floor(random() * (levels > 0 ? 4 : 2))
    if (pick === 0) return Math.floor(random() * 100)
    if (pick === 1) return texts[Math.floor(random() * texts.length)]
    const inner = Array.from({ length: Math.floor(random() * 4) }, () => make(levels - 1))
    return pick === 2 ? inner : Object.fromEntries(inner.map((value, index) => [`${texts[index]}${index}`, value]))
  }
  for (let round = 0; round < 500; round += 1) {
    const value = make(6)
    const depth = depthOf(value)
    const text = JSON.stringify(value)
    expect(deeperThan(text, depth), text).toBe(false)
    if (depth > 0) expect(deeperThan(text, depth - 1), text).toBe(true)
  }
})

test('the depth of a part counts only the brackets that the part opens', () => {
  const text = '{"messages":[{"a":[1]},{"b":[[2]]}]}'
  const rest = text.slice(text.indexOf('{"b"'))
  expect(deeperThan(rest, 3)).toBe(false)
  expect(deeperThan(rest, 2)).toBe(true)
})

function depthOf(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 0
  return 1 + Math.max(0, ...Object.values(value).map(depthOf))
}
