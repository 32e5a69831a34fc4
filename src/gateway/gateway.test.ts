import { expect, test } from 'vitest'
import { keyDigest, newSessionKey } from './sessions/session-memory.ts'
import { KeyRing } from './gateway.ts'

const admins = [
  { tenant: 'acme', key: 'key-of-acme' },
  { tenant: 'other', key: 'mrs-that-looks-like-a-session' },
]

test('a key is its tenant, its session, or nobody', () => {
  const key = newSessionKey()
  const caller = { kind: 'session', tenant: 'acme', sessionId: 's' } as const
  const ring = new KeyRing(admins, (digest) => (digest === keyDigest(key) ? caller : undefined))
  expect(ring.callerFor('key-of-acme')).toEqual({ kind: 'admin', tenant: 'acme' })
  expect(ring.callerFor('mrs-that-looks-like-a-session')).toEqual({ kind: 'admin', tenant: 'other' })
  expect(ring.callerFor(key)).toBe(caller)
  for (const wrong of [
    undefined,
    '',
    'key-of-acm',
    'key-of-acme ',
    `${key}x`,
    newSessionKey(),
    'mrs-',
    'ü',
    'x'.repeat(5000),
  ]) {
    expect(ring.callerFor(wrong)).toBeUndefined()
  }
})

test('the sessions of a tenant who has no key any more are locked out with it', () => {
  const caller = { kind: 'session', tenant: 'former', sessionId: 's' } as const
  const key = newSessionKey()
  expect(new KeyRing(admins, () => caller).callerFor(key)).toBeUndefined()
  const back = [...admins, { tenant: 'former', key: 'a new key of theirs' }]
  expect(new KeyRing(back, () => caller).callerFor(key)).toBe(caller)
})

test('only what looks like a key of a session is looked up', () => {
  const looked: string[] = []
  const ring = new KeyRing(admins, (digest) => void looked.push(digest))
  ring.callerFor('something else')
  ring.callerFor('mrs-x')
  expect(looked).toEqual([keyDigest('mrs-x')])
})

test('keys of sessions have 32 random bytes and are all different', () => {
  const keys = Array.from({ length: 100 }, newSessionKey)
  expect(new Set(keys).size).toBe(100)
  for (const key of keys) expect(key).toMatch(/^mrs-[\w-]{43}$/)
})

test('a ring without admins, or with one key of two tenants, is refused', () => {
  const none = (): undefined => undefined
  expect(() => new KeyRing([], none)).toThrow('at least one admin key')
  expect(() => new KeyRing([...admins, { tenant: 'third', key: 'key-of-acme' }], none)).toThrow(
    'tenants acme and third have the same admin key',
  )
})

test('a key that its tenant names twice is that of the tenant', () => {
  const ring = new KeyRing([...admins, { tenant: 'acme', key: 'key-of-acme' }], () => undefined)
  expect(ring.callerFor('key-of-acme')).toEqual({ kind: 'admin', tenant: 'acme' })
})
