import { getEventListeners } from 'node:events'
import { join } from 'node:path'
import { evaluate } from 'millrace'
import { ScriptedBackend, temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import { activeResources, leftSince } from '../support/kit/active-resources.ts'
import { RolloutService } from '../../src/serve/index.ts'
import longTask from '../fixtures/long-task.ts'
import { ServerLog } from '../fixtures/mcp/misbehaving.ts'
import { nextMove } from '../support/tools/long-task-model.ts'
import { expectOneRecordEach, maxTurns, recordedKeys } from '../support/tools/long-task-run.ts'
import { callsNoted, notedCalls, timesMade } from '../support/tools/noted-calls.ts'
import { liveDescendants, openDescriptors } from '../support/tools/processes.ts'
import { seeded } from '../support/tools/seeded.ts'

const count = 4
const tasks = Array.from({ length: count }, (_, index) => ({ index, kind: index % 2 === 0 ? 'reading' : 'writing' }))
const script = ({ messages }: { messages: Parameters<typeof nextMove>[0] }) => nextMove(messages)

function optionsFor(log: ServerLog, root: string) {
  return {
    environment: longTask,
    options: { log: log.path, count },
    model: { name: 'counting', backends: [{ url: 'http://scripted.invalid' }] },
    backends: { counting: [new ScriptedBackend(script)] },
    limits: { maxTurns },
    preflight: false,
    run: { root, name: 'stopped' },
  }
}

const listeners = (): number => process.eventNames().reduce((sum, name) => sum + process.listenerCount(name), 0)

/** To be asked for after something was run once: some descriptors come with the first use. */
function held() {
  const before = { resources: activeResources(), descriptors: openDescriptors(), listeners: listeners() }
  return async (): Promise<void> => {
    expect(liveDescendants()).toEqual([])
    await expect.poll(() => openDescriptors()).toBeLessThanOrEqual(before.descriptors)
    expect(listeners()).toBe(before.listeners)
    expect(await leftSince(before.resources)).toEqual([])
  }
}

test('a run that is stopped repeatedly continues each time and leaves nothing behind', () =>
  seeded(async (random) => {
    await using runs = await temporaryRuns()
    using log = new ServerLog()
    const folder = join(runs.root, 'stopped')
    const settled = new Map<string, number>()
    const stops = 8
    let expectNothingLeft = async (): Promise<void> => {}
    for (let stop = 0; stop < stops; stop += 1) {
      const stopped = new AbortController()
      const evaluation = evaluate({ ...optionsFor(log, runs.root), signal: stopped.signal })
      const summary = evaluation.summary()
      await evaluation.started
      // Now and then while servers still start; not at first, since what is held is measured after that.
      const more = stop === 0 || random(4) > 0 ? 1 + random(200) : 0
      const until = notedCalls(log.path).length + more
      await callsNoted(log.path, until, () => evaluation.progress().state === 'ended')
      stopped.abort()
      expect(await summary).toMatchObject({ end: 'stopped' })
      expect(getEventListeners(stopped.signal, 'abort')).toEqual([])
      await expectNothingLeft()
      if (stop === 0) expectNothingLeft = held()
      const made = timesMade(notedCalls(log.path))
      for (const key of recordedKeys(folder)) settled.set(key, settled.get(key) ?? made.get(key) ?? 0)
    }
    expect(await evaluate(optionsFor(log, runs.root)).summary()).toMatchObject({ end: 'complete' })
    await expectNothingLeft()
    const records = expectOneRecordEach(folder, count)
    expect(records.map(({ outcome, reward }) => [outcome, reward])).toEqual(records.map(() => ['completed', 1]))
    expect(records.filter(({ attempt }) => attempt === 1).length).toBeGreaterThanOrEqual(count / 2)
    const made = timesMade(notedCalls(log.path))
    for (const [key, times] of settled) expect([key, made.get(key) ?? 0]).toEqual([key, times])
  }))

test('cancelled rollouts end at once, and concurrent rollouts continue', () =>
  seeded(async (random) => {
    await using runs = await temporaryRuns()
    using log = new ServerLog()
    const rounds = 4
    let expectNothingLeft = async (): Promise<void> => {}
    for (let round = 0; round < rounds; round += 1) {
      const run = { root: runs.root, name: `cancelled-${round}` }
      {
        await using service = await RolloutService.open({ ...optionsFor(log, runs.root), run })
        const { results } = await service.submit({ tasks })
        const unwanted = new Set(Array.from({ length: 2 }, () => `${random(count)}-0`))
        let ended = 0
        const cancelling = Array.from(unwanted, async (id) => {
          await callsNoted(log.path, notedCalls(log.path).length + random(300), () => ended === count)
          return service.cancel(id) ? [id] : []
        })
        const outcomes = new Map<string, string>()
        for await (const { id } of results) {
          const { outcome = '', reward } = service.record(id) ?? {}
          outcomes.set(id, outcome)
          expect(reward).toBe(outcome === 'completed' ? 1 : null)
          ended += 1
        }
        const cancelled = (await Promise.all(cancelling)).flat()
        expect(cancelled.length).toBeGreaterThan(0)
        expect(
          [...outcomes]
            .filter(([, outcome]) => outcome === 'cancelled')
            .map(([id]) => id)
            .toSorted(),
        ).toEqual(cancelled.toSorted())
        expect(outcomes.size).toBe(count)
      }
      await expectNothingLeft()
      if (round === 0) expectNothingLeft = held()
    }
  }))
