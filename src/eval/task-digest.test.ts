import { createHash } from 'node:crypto'
import { expect, test } from 'vitest'
import { TaskDigest } from './_task-digest.ts'

test.each([0, 1, 60, 5_000])('of %i tasks it is the digest of their lines', (count) => {
  const tasks = Array.from({ length: count }, (_, index) => ({ index, digest: `digest-${index % 7}` }))
  const digest = new TaskDigest()
  for (const task of tasks) digest.add(task)
  const lines = tasks.map((task) => `${task.index} ${task.digest}\n`).join('')
  expect(digest.hex()).toBe(createHash('sha256').update(lines).digest('hex'))
})
