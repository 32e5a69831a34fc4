import { expect, test } from 'vitest'
import { RecentRequests } from './session-memory.ts'

const key = 'the same body'

/** The recent requests of one session, whose undelivered replies are delivered to the first that asks for them. */
class Recent {
  readonly requests = new RecentRequests<string>()
  readonly undelivered = new Set<number>()

  retried(): unknown {
    const recent = this.requests.retried(key, (seq) => this.undelivered.has(seq))
    if (recent?.kind === 'ended') this.undelivered.delete(recent.seq)
    return recent
  }

  leaveUndelivered(name: string, seq: number): void {
    this.requests.begin(key, name)
    this.requests.end(name, seq)
    this.undelivered.add(seq)
  }
}

test('a retry gets an undelivered reply before a lost request is repeated', () => {
  const recent = new Recent()
  recent.requests.begin(key, 'lost')
  recent.requests.end('lost')
  recent.leaveUndelivered('undelivered', 7)
  expect(recent.retried()).toEqual({ kind: 'ended', seq: 7 })
  expect(recent.retried()).toBeUndefined()
  expect(recent.retried()).toEqual({ kind: 'ended', seq: 7 })
})

test('a retry gets an undelivered reply before it joins a running request', () => {
  const recent = new Recent()
  recent.leaveUndelivered('undelivered', 7)
  recent.requests.begin(key, 'running')
  expect(recent.retried()).toEqual({ kind: 'ended', seq: 7 })
  expect(recent.retried()).toEqual({ kind: 'running', running: 'running' })
})

test('a delivered reply is repeated only if no equal request is lost or running', () => {
  const recent = new Recent()
  recent.requests.begin(key, 'delivered')
  recent.requests.end('delivered', 7)
  recent.requests.begin(key, 'running')
  expect(recent.retried()).toEqual({ kind: 'running', running: 'running' })
  recent.requests.end('running')
  expect(recent.retried()).toBeUndefined()
  expect(recent.retried()).toEqual({ kind: 'ended', seq: 7 })
})
