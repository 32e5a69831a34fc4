import { describe, expect, it } from 'vitest'
import { callArguments } from './_call-arguments.ts'

const schema = { type: 'object', properties: { code: { type: 'string' }, size: { type: 'number' } } }

describe('callArguments', () => {
  it('reads one JSON object', () => {
    expect(callArguments({ json: '{"size": 2, "tags": ["a"]}', pairs: [] }, schema)).toEqual({ size: 2, tags: ['a'] })
  })

  it('takes a value for text where the tool wants text, and for JSON elsewhere', () => {
    const pairs = ['code=007', 'id=9007199254740992', 'size=7', 'tags=["a"]', 'name=Ann', 'query=a=b', 'empty=']
    expect(callArguments({ json: undefined, pairs }, schema)).toEqual({
      code: '007',
      id: 9007199254740992,
      size: 7,
      tags: ['a'],
      name: 'Ann',
      query: 'a=b',
      empty: '',
    })
  })

  it('is an empty object without any', () => {
    expect(callArguments({ json: undefined, pairs: [] }, schema)).toEqual({})
  })

  it.each([
    ['{"size": 2,}', [], /the arguments are not JSON: .*position 11/],
    ['[1]', [], /the arguments must be a JSON object/],
    ['{}', ['size=1'], /not both/],
    [undefined, ['size'], /--arg size lacks a name or a value/],
    ['{"tags": [9007199254740993]}', [], /tags\[0\]: the number 9007199254740993 cannot be passed on exactly/],
    [undefined, ['size=1e999'], /size: the number 1e999 cannot be passed on exactly/],
    [undefined, ['=5'], /--arg =5 lacks a name or a value/],
  ])('refuses %j %j', (json, pairs, message) => {
    expect(() => callArguments({ json, pairs }, schema)).toThrow(message)
  })
})
