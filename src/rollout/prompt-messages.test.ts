import { expect, test } from 'vitest'
import type { Message } from '../schema/index.ts'
import { promptMessages } from './prompt-messages.ts'

test('messages are taken as they are, and a string is one of the user', () => {
  const prompt: Message[] = [
    { role: 'system', content: 'be brief' },
    { role: 'user', content: 'hello', name: 'ann' },
    { role: 'user', content: [{ type: 'text', text: 'again' }] },
  ]
  expect(promptMessages(prompt)).toBe(prompt)
  expect(promptMessages(prompt.slice(0, 1))).toEqual(prompt.slice(0, 1))
  expect(promptMessages('hello')).toEqual([{ role: 'user', content: 'hello' }])
})

test.each([
  { what: 'nothing at all', prompt: [] },
  { what: 'no list', prompt: { role: 'user', content: 'hello' } },
  { what: 'something that is no message', prompt: [{ role: 'user', content: 'hello' }, null] },
  { what: 'a hole', prompt: Object.assign([{ role: 'user', content: 'hello' }], { length: 2 }) },
  { what: 'a list for a message', prompt: [Object.assign([], { role: 'user', content: 'hello' })] },
  { what: 'an unknown role', prompt: [{ role: 'wizard', content: 'hello' }] },
  { what: 'a name that is none', prompt: [{ role: 'user', content: 'hello', name: undefined }] },
  { what: 'a content that is none', prompt: [{ role: 'user', content: 7 }] },
])('refuses $what', ({ prompt }) => {
  expect(() => promptMessages(prompt as unknown as Message[])).toThrow(
    expect.objectContaining({ code: 'setup_failed' }),
  )
})

test('says what a message lacks, and what it has instead', () => {
  expect(() => promptMessages([{ role: 'user', text: 'hello' }] as unknown as Message[])).toThrow(
    '[0].content: missing; found "role", "text"',
  )
})
