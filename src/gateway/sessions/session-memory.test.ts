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

test('an undelivered reply is given to a retry before anything is asked afresh for one that was lost', () => {
  const recent = new Recent()
  recent.requests.begin(key, 'lost')
  recent.requests.end('lost')
  recent.leaveUndelivered('undelivered', 7)
  expect(recent.retried()).toEqual({ kind: 'ended', seq: 7 })
  expect(recent.retried()).toBeUndefined()
  expect(recent.retried()).toEqual({ kind: 'ended', seq: 7 })
})

test('and before it joins one that is under way, whose client gets that', () => {
  const recent = new Recent()
  recent.leaveUndelivered('undelivered', 7)
  recent.requests.begin(key, 'running')
  expect(recent.retried()).toEqual({ kind: 'ended', seq: 7 })
  expect(recent.retried()).toEqual({ kind: 'running', running: 'running' })
})

test('a delivered reply is given once more only if nothing of the kind is lost or under way', () => {
  const recent = new Recent()
  recent.requests.begin(key, 'delivered')
  recent.requests.end('delivered', 7)
  recent.requests.begin(key, 'running')
  expect(recent.retried()).toEqual({ kind: 'running', running: 'running' })
  recent.requests.end('running')
  expect(recent.retried()).toBeUndefined()
  expect(recent.retried()).toEqual({ kind: 'ended', seq: 7 })
})
