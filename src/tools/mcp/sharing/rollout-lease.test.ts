import { expect, test } from 'vitest'
import { MillraceError } from '../../../errors/index.ts'
import { KnownCatalogues } from '../catalogue/tool-catalogue.ts'
import { RolloutLease, type ServerPolicy } from './rollout-lease.ts'
import type { SharableSession } from './session-source.ts'
import type { ServerAnswer } from '../transports/pending-calls.ts'

const { signal } = new AbortController()
const call = { tool: 'counter', arguments: {}, signal }
const restarted: ServerAnswer = {
  content: '1',
  isError: false,
  detail: { server: 'one', generation: 2, attempts: 1, sessionRestarted: true },
}
const lostAgain = new MillraceError('tool_infra', 'lost again', {
  data: { server: 'one', generation: 2, attempt: 1, sessionRestarted: true },
})

function leaseOf(policy: ServerPolicy, answer: () => ServerAnswer): RolloutLease {
  const session: SharableSession = {
    catalogue: undefined,
    isOpen: true,
    open: () => Promise.reject(new Error('it is open')),
    beginLease: () => {},
    call: async () => answer(),
    close: () => Promise.resolve(),
  }
  const held = { session, giveBack: () => {} }
  return new RolloutLease([{ server: 'one', policy, held, waiting: { count: 0 } }], new KnownCatalogues())
}

const fail = (error: MillraceError) => (): never => {
  throw error
}

test.each([true, false])('with onRestart "fail" a restart ends the rollout; required: %s', async (isRequired) => {
  await using answering = leaseOf({ isRequired, onRestart: 'fail' }, () => restarted)
  await expect(answering.call('one', call)).rejects.toMatchObject({
    code: 'tool_infra',
    message: expect.stringContaining('has lost the state of this rollout'),
    data: { server: 'one', generation: 2, sessionRestarted: true },
  })
  await using failing = leaseOf({ isRequired, onRestart: 'fail' }, fail(lostAgain))
  await expect(failing.call('one', call)).rejects.toBe(lostAgain)
})

test('with onRestart "tell" the answer reports the restart, also if the server is unavailable', async () => {
  await using answering = leaseOf({ isRequired: false, onRestart: 'tell' }, () => restarted)
  expect(await answering.call('one', call)).toBe(restarted)
  await using failing = leaseOf({ isRequired: false, onRestart: 'tell' }, fail(lostAgain))
  expect(await failing.call('one', call)).toMatchObject({
    isError: true,
    detail: { generation: 2, attempts: 1, sessionRestarted: true },
  })
})

test('a server lost before its first call is not reported as restarted', async () => {
  const lost = new MillraceError('tool_infra', 'lost', { data: { server: 'one', generation: 1, attempt: 1 } })
  await using lease = leaseOf({ isRequired: false, onRestart: 'fail' }, fail(lost))
  expect((await lease.call('one', call)).detail).toEqual({ server: 'one', generation: 1, attempts: 1 })
})
