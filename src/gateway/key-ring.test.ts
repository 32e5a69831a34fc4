import { expect, test } from 'vitest'
import { keyDigest, newSessionKey } from './sessions/session-memory.ts'
import { KeyRing } from './key-ring.ts'

const admins = [
  { tenant: 'acme', key: 'key-of-acme' },
  { tenant: 'other', key: 'mrs-that-looks-like-a-session' },
]

test('a key identifies a tenant, a session, or no caller', () => {
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

test('the sessions of a tenant without a key are refused as well', () => {
  const caller = { kind: 'session', tenant: 'former', sessionId: 's' } as const
  const key = newSessionKey()
  expect(new KeyRing(admins, () => caller).callerFor(key)).toBeUndefined()
  const back = [...admins, { tenant: 'former', key: 'a new key of theirs' }]
  expect(new KeyRing(back, () => caller).callerFor(key)).toBe(caller)
})

test('only keys with the form of a session key are looked up', () => {
  const looked: string[] = []
  const ring = new KeyRing(admins, (digest) => void looked.push(digest))
  ring.callerFor('something else')
  ring.callerFor('mrs-x')
  expect(looked).toEqual([keyDigest('mrs-x')])
})

test('with given keys, a key of any form is looked up, unless it is an admin key', () => {
  const caller = { kind: 'session', tenant: 'acme', sessionId: 's' } as const
  const ring = new KeyRing(admins, (digest) => (digest === keyDigest('my key') ? caller : undefined), {
    takesGivenKeys: true,
  })
  expect(ring.callerFor('my key')).toBe(caller)
  expect(ring.callerFor('another key')).toBeUndefined()
  expect(ring.callerFor('key-of-acme')).toEqual({ kind: 'admin', tenant: 'acme' })
})

test('session keys have 32 random bytes and are all different', () => {
  const keys = Array.from({ length: 100 }, newSessionKey)
  expect(new Set(keys).size).toBe(100)
  for (const key of keys) expect(key).toMatch(/^mrs-[\w-]{43}$/)
})

test('a key ring without admins, or with one key for two tenants, is refused', () => {
  const none = (): undefined => undefined
  expect(() => new KeyRing([], none)).toThrow('at least one admin key')
  expect(() => new KeyRing([...admins, { tenant: 'third', key: 'key-of-acme' }], none)).toThrow(
    'tenants acme and third have the same admin key',
  )
})

test('a key listed twice by its tenant is accepted', () => {
  const ring = new KeyRing([...admins, { tenant: 'acme', key: 'key-of-acme' }], () => undefined)
  expect(ring.callerFor('key-of-acme')).toEqual({ kind: 'admin', tenant: 'acme' })
})
