import { expect, test } from 'vitest'
import type { Json } from '../../../schema/index.ts'
import { answerContent, rpcErrorOf } from './rpc-messages.ts'

const text = (said: string) => ({ type: 'text', text: said })
const contentOf = (...blocks: object[]) => answerContent({ content: blocks })?.content

test('text content becomes one string', () => {
  expect(contentOf(text('one'))).toBe('one')
  expect(contentOf(text('one'), text('two'))).toBe('one\ntwo')
  expect(contentOf()).toBe('')
})

test('images become parts with a data URL, also those of resources', () => {
  const url = 'data:image/jpeg;base64,AAAA'
  const picture = { type: 'image_url', image_url: { url } }
  expect(contentOf(text('see'), { type: 'image', data: 'AAAA', mimeType: 'image/jpeg' })).toEqual([
    text('see'),
    picture,
  ])
  const resource = { uri: 'file:///a.jpg', blob: 'AAAA', mimeType: 'image/jpeg' }
  expect(contentOf({ type: 'resource', resource })).toEqual([picture])
})

test.each([
  [{ type: 'resource', resource: { uri: 'file:///a', text: 'inline' } }, 'inline'],
  [
    { type: 'resource', resource: { uri: 'file:///a', blob: 'AAAA' } },
    '[resource file:///a, of unknown type, cannot be shown]',
  ],
  [
    { type: 'resource_link', uri: 'file:///b', name: 'b', mimeType: 'text/plain', description: 'the second' },
    '[b](file:///b) (text/plain, the second)',
  ],
  [{ type: 'audio', data: 'AAAA', mimeType: 'audio/wav' }, '[audio, audio/wav, cannot be shown]'],
  [{ type: 'hologram' }, '[content of an unknown kind: {"type":"hologram"}]'],
  [{ type: 'text' }, '[content of an unknown kind: {"type":"text"}]'],
])('%j is described as text', (block, said) => {
  expect(contentOf(block)).toBe(said)
})

test('structured content is kept, and written as text if the server sent none', () => {
  const structuredContent = { sum: 3 }
  expect(answerContent({ content: [text('3')], structuredContent })).toEqual({
    content: '3',
    isError: false,
    structured: structuredContent,
  })
  expect(answerContent({ content: [], structuredContent })?.content).toBe('{"sum":3}')
  expect(answerContent({ structuredContent, isError: true })).toMatchObject({ content: '{"sum":3}', isError: true })
})

test.each([undefined, null, 'text', [], {}, { content: 'text' }])('%j is not a tool result', (result) => {
  expect(answerContent(result)).toBeUndefined()
})

const written: [Json, ReturnType<typeof rpcErrorOf>][] = [
  [
    { code: -32_602, message: 'bad' },
    { code: -32_602, message: 'bad' },
  ],
  [{ message: 'no code' }, { code: -32_603, message: 'no code' }],
  [
    { code: -32_000, message: { why: 1 } },
    { code: -32_000, message: '{"why":1}' },
  ],
  [{ code: -32_000 }, { code: -32_000, message: '{"code":-32000}' }],
  ['boom', { code: -32_603, message: 'boom' }],
  [7, { code: -32_603, message: '7' }],
  [null, undefined],
]

test.each(written)('%j', (error, read) => {
  expect(rpcErrorOf(error)).toEqual(read)
})
