import { expect, test } from 'vitest'
import { ArraySet } from '../../../kit/index.ts'
import { activeResources, leftSince } from '../../../kit/_testing/active-resources.ts'
import { HttpCall } from './_http-call.ts'

test('a call with an answer and an open stream is known to its link, which ends it; it was never sent more than once', async () => {
  const before = activeResources()
  const lingering = new ArraySet<HttpCall>()
  const sent: string[] = []
  const call = new HttpCall({
    id: 1,
    post: () => sent.push('post'),
    resume: () => sent.push('resume'),
    onMessage: () => {},
    onFailure: () => sent.push('failure'),
    lingering,
  })
  expect(call.isSent).toBe(false)
  call.release()
  call.release()
  expect([...lingering]).toEqual([call])
  for (const each of lingering) each.abort()
  call.abort()
  expect(lingering.size).toBe(0)
  expect(sent).toEqual(['post'])
  expect(await leftSince(before)).toEqual([])
})
