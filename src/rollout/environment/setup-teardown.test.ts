import { expect, test } from 'vitest'
import { z } from 'zod'
import { defineEnvironment, type Environment } from '../../env/index.ts'
import type { Message } from '../../schema/index.ts'
import { noServers } from '../../tools/index.ts'
import { promptMessages, setUp, tearDown } from './setup-teardown.ts'

test('a list of messages is used unchanged, and a string becomes a user message', () => {
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

test('names what a message lacks, and what it has instead', () => {
  expect(() => promptMessages([{ role: 'user', text: 'hello' }] as unknown as Message[])).toThrow(
    '[0].content: missing; found "role", "text"',
  )
})

const occasion = {
  task: { number: 7 },
  options: {},
  rollout: { id: '0-0', attempt: 1, sample: 0, seed: 1 },
  servers: noServers,
}

function environmentWith(hooks: Pick<Environment, 'setup' | 'teardown'>): Environment {
  const task = z.object({ number: z.number() })
  return defineEnvironment({ name: 'life', task, tasks: () => [], prompt: () => '', reward: () => 1, ...hooks })
}

test('the result of a setup in time is left to its caller to tear down', async () => {
  const torn: unknown[] = []
  const given = new AbortController()
  const environment = environmentWith({
    setup: () => Promise.resolve('a sandbox'),
    teardown: ({ state }) => void torn.push(state),
  })
  expect(await setUp(environment, { ...occasion, signal: given.signal })).toBe('a sandbox')
  given.abort(new Error('gone'))
  await new Promise(setImmediate)
  expect(torn).toEqual([])
})

test('the late result of an abandoned setup is torn down once, with its own signal', async () => {
  const torn: unknown[] = []
  const late = Promise.withResolvers<string>()
  const given = new AbortController()
  const environment = environmentWith({
    setup: () => late.promise,
    teardown: ({ task, rollout, state, signal }) => {
      torn.push([task, rollout.id, state, signal.aborted])
      throw new Error('nobody hears of it')
    },
  })
  const setting = setUp(environment, { ...occasion, signal: given.signal })
  given.abort(new Error('gone'))
  await expect(setting).rejects.toThrow('gone')
  expect(torn).toEqual([])
  late.resolve('a sandbox')
  await expect.poll(() => torn).toEqual([[{ number: 7 }, '0-0', 'a sandbox', false]])
})

test('an abandoned setup that fails has no teardown', async () => {
  const torn: unknown[] = []
  const given = new AbortController()
  const environment = environmentWith({
    setup: ({ signal }) =>
      new Promise((_, reject) => signal.addEventListener('abort', () => reject(new Error('stopped')))),
    teardown: ({ state }) => void torn.push(state),
  })
  const setting = setUp(environment, { ...occasion, signal: given.signal })
  given.abort(new Error('gone'))
  await expect(setting).rejects.toThrow()
  await new Promise(setImmediate)
  expect(torn).toEqual([])
})

test('a failed teardown returns its error instead of throwing', async () => {
  const environment = environmentWith({
    teardown: () => {
      throw new TypeError('no broom')
    },
  })
  const closing = { ...occasion, state: undefined }
  expect(await tearDown(environment, closing)).toMatchObject({
    code: 'teardown_failed',
    rawMessage: 'teardown threw TypeError: no broom',
  })
  expect(await tearDown(environmentWith({}), closing)).toBeUndefined()
})
