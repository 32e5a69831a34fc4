import { describe, expect, test } from 'vitest'
import { deepCopy } from './deep-copy.ts'

class Board {
  moves: string[] = []
}

describe('deepCopy', () => {
  test.each([
    ['text', 'a'],
    ['null', null],
    ['an object without a prototype', Object.assign(Object.create(null), { a: { b: 1 } })],
    ['a key that is a trap', JSON.parse('{ "__proto__": { "a": 1 } }')],
    ['nested data', { a: [1, { b: [null, 'c'] }], at: new Date(5), undefined }],
    ['maps and sets', { map: new Map([[{ key: 1 }, [1]]]), set: new Set([{ a: 1 }]) }],
  ])('the copy equals the original: %s', (_, value: unknown) => {
    const copy = deepCopy(value)
    expect(copy).toStrictEqual(value)
    if (typeof value === 'object' && value !== null) expect(copy).not.toBe(value)
  })

  test('changes in the copy, at any depth, do not change the original', () => {
    const original = { list: [{ n: 1 }], map: new Map([['a', [1]]]), set: new Set([{ n: 1 }]), at: new Date(5) }
    const copy = deepCopy(original)
    for (const each of [...copy.list, ...copy.set]) each.n = 2
    copy.map.get('a')?.push(2)
    copy.at.setTime(6)
    expect(original).toEqual({
      list: [{ n: 1 }],
      map: new Map([['a', [1]]]),
      set: new Set([{ n: 1 }]),
      at: new Date(5),
    })
  })

  test('instances of other classes are not copied', () => {
    const board = new Board()
    const bytes = Uint8Array.of(1)
    expect(deepCopy(board)).toBe(board)
    expect(deepCopy({ board, bytes, toText: String })).toEqual({ board, bytes, toText: String })
    expect(deepCopy({ board }).board).toBe(board)
  })

  test('shared objects and cycles stay shared in the copy', () => {
    const shared = { n: 1 }
    const original: { one: object; other: object; self?: object } = { one: shared, other: shared }
    original.self = original
    const copy = deepCopy(original)
    expect(copy.one).toBe(copy.other)
    expect(copy.one).not.toBe(shared)
    expect(copy.self).toBe(copy)
  })

  test('very deep values are copied', () => {
    let deep: object = {}
    for (let level = 0; level < 100_000; level += 1) deep = { deep }
    expect(Object.keys(deepCopy(deep))).toEqual(['deep'])
  })
})
