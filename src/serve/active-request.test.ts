import { expect, test } from 'vitest'
import { ActiveRequest } from './_active-request.ts'

test('without its last owner a request goes on for as long as it was said, and be it for ever', async () => {
  const abandoned: string[] = []
  const { promise, resolve } = Promise.withResolvers<void>()
  const open = (id: string, graceMs: number): ActiveRequest =>
    new ActiveRequest({
      request: { id, digest: '', firstTask: 0, tasks: 1, attempts: 1, isDetached: false, at: 0, outcomes: {} },
      accepted: Promise.resolve(),
      unsettled: 1,
      graceMs,
      isUnsettled: () => true,
      onAbandoned: () => {
        abandoned.push(id)
        if (id === 'short') resolve()
      },
    })
  for (const request of [open('month', 30 * 24 * 3_600_000), open('ever', Infinity), open('short', 5)]) {
    await request.read('owner').return()
  }
  await promise
  expect(abandoned).toEqual(['short'])
})
