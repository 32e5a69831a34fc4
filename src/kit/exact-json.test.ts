import { expect, test } from 'vitest'
import { hasInexactNumber, lostNumber, parseExactly } from './exact-json.ts'

test.each(['9007199254740993', '-12345678901234567890', '1e400', '-0', '3.14159265358979323846', '1e21'])(
  '%s is written as it came',
  (number) => {
    const text = `{"a":[{"b":${number}}],"c":"${number}","d":1.5}`
    expect(hasInexactNumber(JSON.parse(text))).toBe(true)
    expect(JSON.stringify(parseExactly(text))).toBe(text)
    expect(parseExactly(text)).toMatchObject({ d: 1.5 })
  },
)

test.each(['0', '-1', '9007199254740991', '0.1', '-123.456', '1e3', '"9007199254740993"', 'null', 'true', '[]'])(
  '%s is what it is',
  (value) => {
    expect(hasInexactNumber(JSON.parse(`{"a":[${value}]}`))).toBe(false)
  },
)

test.each([
  ['{"a":[{"b":1},{"b":9007199254740993}]}', { path: ['a', 1, 'b'], source: '9007199254740993' }],
  ['{"a":-1e400}', { path: ['a'], source: '-1e400' }],
  ['9007199254740992', undefined],
  ['{"a":[-0,1e22,1e23,3.14159265358979323846],"b":"9007199254740993"}', undefined],
])('in %s the number is lost: %j', (text, lost) => {
  expect(lostNumber(text, JSON.parse(text))).toEqual(lost)
})

test('what is nested without an end is not followed', () => {
  expect(hasInexactNumber(JSON.parse(`${'['.repeat(5000)}1e400${']'.repeat(5000)}`))).toBe(false)
})

test('a name that objects have is a name like any other', () => {
  expect(JSON.stringify(parseExactly('{"__proto__":{"a":1e400}}'))).toBe('{"__proto__":{"a":1e400}}')
})
