import { expect, test } from 'vitest'
import { RecentRequests } from './recent-requests.ts'

const key = 'the same body'

test('a reply that nobody heard is given to a retry before anything is asked afresh for one that was lost', () => {
  const recent = new RecentRequests<string>()
  recent.begin(key, 'lost')
  recent.end('lost')
  recent.begin(key, 'unheard')
  recent.end('unheard', { seq: 7, wasHeard: false })
  expect(recent.retried(key)).toEqual({ kind: 'ended', seq: 7 })
  expect(recent.retried(key)).toBeUndefined()
  expect(recent.retried(key)).toEqual({ kind: 'ended', seq: 7 })
})

test('and before it joins one that is under way, whose client gets that', () => {
  const recent = new RecentRequests<string>()
  recent.begin(key, 'unheard')
  recent.end('unheard', { seq: 7, wasHeard: false })
  recent.begin(key, 'running')
  expect(recent.retried(key)).toEqual({ kind: 'ended', seq: 7 })
  expect(recent.retried(key)).toEqual({ kind: 'running', running: 'running' })
})

test('a reply that was heard is given once more only if nothing of the kind is lost or under way', () => {
  const recent = new RecentRequests<string>()
  recent.begin(key, 'heard')
  recent.end('heard', { seq: 7, wasHeard: true })
  recent.begin(key, 'running')
  expect(recent.retried(key)).toEqual({ kind: 'running', running: 'running' })
  recent.end('running')
  expect(recent.retried(key)).toBeUndefined()
  expect(recent.retried(key)).toEqual({ kind: 'ended', seq: 7 })
})
