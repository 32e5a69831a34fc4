import { join } from 'node:path'
import { temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import { RolloutService } from '../../src/serve/index.ts'
import { fixture } from '../support/cli/millrace-process.ts'
import { ServerLog } from '../fixtures/mcp/misbehaving.ts'
import { serveLongTaskModel, type ServedModel } from '../support/tools/long-task-model.ts'
import { expectOneRecordEach, maxTurns, processesNaming } from '../support/tools/long-task-run.ts'
import { callsNoted, notedCalls } from '../support/tools/noted-calls.ts'
import { isRunning, liveDescendants } from '../support/tools/processes.ts'
import { seeded } from '../support/tools/seeded.ts'

const count = 4
const tasks = Array.from({ length: count }, (_, index) => ({ index, kind: index % 2 === 0 ? 'reading' : 'writing' }))

interface Running {
  readonly service: RolloutService
  readonly log: ServerLog
  readonly model: ServedModel
}

/** Runs the long task in two workers, and does something to them in the middle of it. */
async function runInWorkers(module: string, during: (running: Running) => Promise<void>): Promise<void> {
  await using model = await serveLongTaskModel()
  await using runs = await temporaryRuns()
  using log = new ServerLog()
  {
    await using service = await RolloutService.open({
      environment: fixture(module),
      options: { log: log.path },
      model: { name: 'counting', backends: [{ url: model.url }] },
      limits: { maxTurns },
      workers: 2,
      // What a worker that is replaced still runs starts over in another.
      supervision: { retireTimeoutMs: 50 },
      preflight: false,
      run: { root: runs.root, name: 'worked' },
    })
    const { results } = await service.submit({ tasks })
    const ended = Array.fromAsync(results)
    await during({ service, log, model })
    await ended
  }
  expect(liveDescendants()).toEqual([])
  expect(processesNaming(log.path)).toEqual([])
  const records = expectOneRecordEach(join(runs.root, 'worked'), count)
  expect(records.map(({ outcome, reward }) => [outcome, reward])).toEqual(records.map(() => ['completed', 1]))
  expect(records.some(({ attempt }) => attempt > 1)).toBe(true)
}

/** In the middle of it: of 1,200 calls some were made, and no rollout can have ended. */
async function areAtWork(log: ServerLog, random: (below: number) => number): Promise<void> {
  await callsNoted(log.path, 1 + random(250), () => false)
}

test('a killed worker process takes its servers with it', () =>
  seeded(async (random) => {
    await runInWorkers('long-task-isolated.ts', async ({ log }) => {
      await areAtWork(log, random)
      const callers = new Set(notedCalls(log.path).map(({ pid }) => pid))
      const families = liveDescendants().map(({ pid }) => ({ pid, below: liveDescendants(pid) }))
      const workers = families.filter(({ below }) => below.some(({ pid }) => callers.has(pid)))
      const victim = workers[random(workers.length)]
      expect(victim).toBeDefined()
      if (victim) process.kill(victim.pid, 'SIGKILL')
      await expect.poll(() => victim?.below.filter(({ pid }) => isRunning(pid))).toEqual([])
    })
  }))

test('replaced worker threads leave no servers behind', () =>
  seeded(async (random) => {
    await runInWorkers('long-task.ts', async ({ service, log, model }) => {
      await areAtWork(log, random)
      const before = liveDescendants()
      // Nothing ends while they are replaced.
      const release = model.hold()
      await service.restartWorkers()
      await expect.poll(() => before.filter(({ pid }) => isRunning(pid))).toEqual([])
      release()
    })
  }))
