import { expect, test } from 'vitest'
import type { Message } from '../../schema/index.ts'
import { LastPath } from './last-path.ts'
import { SaidMessage } from './_said-message.ts'
import { TextAllowance } from './_text-allowance.ts'

const said = (...texts: string[]): Message[] => texts.map((content) => ({ role: 'user', content }))

/** A path of these messages, whose nodes are named after them, and its allowance. */
function pathOf(texts: readonly string[], chars = 1000): { path: LastPath<string>; room: () => number } {
  const allowance = new TextAllowance(chars, () => false)
  const path = new LastPath<string>(allowance)
  const messages = said(...texts).map((message) => new SaidMessage(message))
  path.replaceAfter(0, messages, { nodes: texts.map((text) => `node ${text}`), respelled: new Map() })
  return { path, room: () => roomIn(allowance, chars) }
}

function roomIn(allowance: TextAllowance, chars: number): number {
  for (let room = chars; ; room -= 1) {
    if (!allowance.take(room)) continue
    allowance.giveBack(room)
    return room
  }
}

test.each([
  ['shorter than the path', ['a'], 1],
  ['as long as the path', ['a', 'b', 'c'], 3],
  ['longer than the path', ['a', 'b', 'c', 'd', 'e'], 3],
  ['empty', [], 0],
  ['different in the middle', ['a', 'x', 'c', 'd'], 1],
])('a conversation that is %s shares its beginning with it', (_, texts, common) => {
  const { path } = pathOf(['a', 'b', 'c'])
  expect(path.commonWith(said(...texts))).toBe(common)
  expect(path.nodeAfter(common)).toBe(common === 0 ? undefined : `node ${texts[common - 1]}`)
})

test.each([
  ['the path has that node there', { count: 2, node: 'node b' }, ['?', '?', 'c', 'd'], 3],
  ['the path has another node there', { count: 2, node: 'node z' }, ['?', '?', 'c', 'd'], 0],
  ['the path ends before it', { count: 4, node: 'node d' }, ['a', 'b', 'c', 'd'], 3],
])('a known beginning is not compared again if %s', (_, before, texts, common) => {
  const { path } = pathOf(['a', 'b', 'c'])
  expect(path.commonWith(said(...texts), before)).toBe(common)
})

test.each([
  ['shorter', ['a', 'b']],
  ['longer', ['a', 'b', 'c', 'd', 'e']],
])('sharing the text of a conversation that is %s leaves the path as long as it was', (_, texts) => {
  const { path, room } = pathOf(['a', 'b', 'c'])
  const [chars, left] = [path.chars, room()]
  path.shareTextWith(said(...texts), 1)
  expect(path.commonWith(said('a', 'b', 'c', 'd', 'e'))).toBe(3)
  expect([path.chars, room()]).toEqual([chars, left])
  path.clear()
  expect([path.chars, room()]).toEqual([0, 1000])
})

test('a path without room for all its messages ends before the first that has none', () => {
  const { path } = pathOf(['a', 'b', 'c'], pathOf(['a', 'b']).path.chars)
  expect(path.commonWith(said('a', 'b', 'c'))).toBe(2)
})

test('a reply is part of the path only if the path ends with the message before it', () => {
  const { path } = pathOf(['a', 'b'])
  const reply = new SaidMessage({ role: 'assistant', content: 'd' })
  path.extend('node c', reply, 'node d')
  expect(path.nodeAfter(3)).toBeUndefined()
  path.extend('node b', reply, 'node d')
  expect(path.nodeAfter(3)).toBe('node d')
})

test('places of another spelling go with the messages they are of', () => {
  const { path } = pathOf(['a', 'b', 'c'])
  const messages = said('d', 'e').map((message) => new SaidMessage(message))
  path.replaceAfter(3, messages, { nodes: ['node d', 'node e'], respelled: new Map([[3, 'node d']]) })
  expect([path.respelledWithin(3), path.respelledWithin(5)]).toEqual([[], [3]])
  path.replaceAfter(3, messages, { nodes: ['node d', 'node e'], respelled: new Map() })
  expect(path.respelledWithin(5)).toEqual([])
})
