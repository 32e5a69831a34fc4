import assert from 'node:assert/strict'
import { test } from 'node:test'
import { calls, runScripted } from 'millrace/testing'
import environment from './environment.ts'

await test('a model that reads the calculator is right', async () => {
  const { records, summary } = await runScripted({
    environment,
    limit: 3,
    // An answer follows from what was asked, never from the order of the questions: rollouts run at once.
    script: ({ messages }) => {
      const last = messages.at(-1)
      if (last?.role === 'tool') return `Answer: ${last.content}`
      const [, expression] = /What is (.+)\?/.exec(String(last?.content)) ?? []
      return calls({ calculator: { expression } })
    },
  })
  assert.equal(summary.score?.mean, 1)
  assert.equal(records.length, 3)
  for (const { outcome, turns, toolCalls } of records) {
    assert.deepEqual({ outcome, turns, toolCalls }, { outcome: 'completed', turns: 2, toolCalls: 1 })
  }
})

await test('what the calculator cannot read is an error that the model sees', async () => {
  const { records, backend } = await runScripted({
    environment,
    limit: 1,
    script: ({ messages }) =>
      messages.at(-1)?.role === 'tool' ? 'I give up.' : calls({ calculator: { expression: 'two plus two' } }),
  })
  assert.match(String(backend.requests[1]?.messages.at(-1)?.content), /^Error: expected a number instead of "t"/)
  assert.equal(records[0]?.outcome, 'completed')
  assert.equal(records[0]?.reward, 0)
  assert.equal(records[0]?.toolErrors, 1)
})
