import { defineEnvironment, evaluate, z, type Evaluation } from 'millrace'
import { ScriptedBackend, temporaryRuns } from 'millrace/testing'
import { describe, expect, test } from 'vitest'

/** More than may wait unread and on their way to disk together. */
const tasks = 700

function evaluateMany(root: string, length = tasks): Evaluation {
  return evaluate({
    environment: defineEnvironment({
      name: 'many',
      task: z.object({}),
      tasks: () => Array.from({ length }, () => ({})),
      prompt: () => 'go',
      reward: () => 1,
    }),
    model: { name: 'scripted', backends: [{ url: 'http://scripted.invalid' }] },
    backends: { scripted: [new ScriptedBackend(() => 'fine')] },
    preflight: false,
    run: { root },
  })
}

/** As many wait unread as may. */
async function standsStill(run: Evaluation): Promise<void> {
  await expect.poll(() => run.progress().unread).toBeGreaterThan(256)
}

describe('a run whose reader does not read', () => {
  test.each(['stop', 'drain'] as const)('ends on %s', async (end) => {
    await using runs = await temporaryRuns()
    const run = evaluateMany(runs.root)
    const reader = run[Symbol.asyncIterator]()
    await reader.next()
    await standsStill(run)
    run[end]()
    const summary = await run.summary()
    expect(summary.end).toBe(end === 'stop' ? 'stopped' : 'drained')
    expect(summary.rollouts).toBeLessThan(tasks)
    await reader.return?.()
  })

  test('continues while its loop awaits the summary, and the reader misses no result', async () => {
    await using runs = await temporaryRuns()
    const run = evaluateMany(runs.root)
    let read = 0
    for await (const _record of run) {
      read += 1
      if (read === 1) expect((await run.summary()).rollouts).toBe(tasks)
    }
    expect(read).toBe(tasks)
  })
})

test('reading after unread results were dropped is refused', async () => {
  await using runs = await temporaryRuns()
  const run = evaluateMany(runs.root)
  await run.summary()
  await expect(Array.fromAsync(run)).rejects.toMatchObject({ code: 'usage' })
})

test('leaving the loop at the last result leaves a complete run', async () => {
  await using runs = await temporaryRuns()
  const run = evaluateMany(runs.root, 50)
  for await (const _record of run) if (run.progress().ended === 50) break
  const { end, state } = await run.summary()
  expect([end, state]).toEqual(['complete', 'complete'])
})
