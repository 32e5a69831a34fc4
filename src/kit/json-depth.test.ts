import { expect, test } from 'vitest'
import { isDeeperThan } from './json-depth.ts'
import { seededRandom } from './random.ts'

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

test('what is never closed is not read beyond its end', () => {
  expect(deeperThan(`["${'x'.repeat(100)}`, 1)).toBe(false)
  expect(deeperThan('["\\', 1)).toBe(false)
  expect(deeperThan('['.repeat(1_000_000), 64)).toBe(true)
})

test('it says of any value what its structure says', () => {
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

test('a part is as deep as what it opens', () => {
  const text = '{"messages":[{"a":[1]},{"b":[[2]]}]}'
  const rest = text.slice(text.indexOf('{"b"'))
  expect(deeperThan(rest, 3)).toBe(false)
  expect(deeperThan(rest, 2)).toBe(true)
})

function depthOf(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 0
  return 1 + Math.max(0, ...Object.values(value).map(depthOf))
}
