import { join } from 'node:path'
import { temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import { RunReader } from '../../src/store/index.ts'
import { fixture, startMillrace, type Running } from '../support/cli/millrace-process.ts'
import { ServerLog } from '../fixtures/mcp/misbehaving.ts'
import { serveLongTaskModel } from '../support/tools/long-task-model.ts'
import { expectOneRecordEach, maxTurns, processesNaming, recordedKeys } from '../support/tools/long-task-run.ts'
import { callsNoted, notedCalls, timesMade, type NotedCall } from '../support/tools/noted-calls.ts'
import { isRunning, liveDescendants } from '../support/tools/processes.ts'
import { seeded } from '../support/tools/seeded.ts'

const count = 4

const attemptOf = ({ key }: NotedCall): string => key.split('.', 2).join('.')

test.each([
  ['on one thread', 'long-task.ts', [], 3],
  ['on two threads', 'long-task.ts', ['--workers', '2'], 1],
  ['in two processes', 'long-task-isolated.ts', ['--workers', '2'], 1],
])('a run %s that is killed repeatedly completes with the same results', (_, module, where, kills) =>
  seeded(async (random) => {
    await using model = await serveLongTaskModel()
    await using runs = await temporaryRuns()
    using log = new ServerLog()
    const folder = join(runs.root, 'runs', 'killed')
    const words = ['eval', fixture(module), '-m', 'counting', '--base-url', model.url, '--run', 'killed', '--json']
    const options = [`--env.log=${log.path}`, `--env.count=${count}`, '--env.pooled=fork-grandchild']
    const sit = (): Running =>
      startMillrace({ cwd: runs.root }, ...words, ...options, ...where, '--max-turns', String(maxTurns))

    /** What had been recorded when it was killed, and how often those calls had been made until then. */
    const settled = new Map<string, number>()
    for (let kill = 0; kill < kills; kill += 1) {
      await using running = sit()
      // Late enough for something to be on disk. A writing task starts over and needs 300 calls in one launch: none of these gets to the end.
      const until = notedCalls(log.path).length + 60 + random(140)
      await callsNoted(log.path, until, () => running.process.exitCode !== null)
      expect(running.process.exitCode).toBe(null)
      const pid = running.process.pid ?? 0
      const family = liveDescendants(pid)
      expect(family.length).toBeGreaterThan(1)
      running.process.kill('SIGKILL')
      await running.ended
      await expect.poll(() => family.filter((one) => isRunning(one.pid))).toEqual([])
      await expect.poll(() => processesNaming(log.path)).toEqual([])
      expect(log.entries('grandchild').filter(({ detail }) => isRunning(Number(detail)))).toEqual([])
      const made = timesMade(notedCalls(log.path))
      for (const key of recordedKeys(folder)) settled.set(key, settled.get(key) ?? made.get(key) ?? 0)
    }
    await using running = sit()
    const { code, stderr } = await running.ended
    expect(code, stderr).toBe(0)
    expect(processesNaming(log.path)).toEqual([])

    const records = expectOneRecordEach(folder, count)
    expect(records.map(({ outcome, reward, children }) => [outcome, reward, children])).toEqual(
      records.map(() => ['completed', 1, 2]),
    )
    // What was recorded was not called again; what was called again had not been recorded.
    const made = timesMade(notedCalls(log.path))
    for (const [key, times] of settled) expect([key, made.get(key) ?? 0]).toEqual([key, times])
    for (const [key, times] of made) expect(times, key).toBeLessThanOrEqual(1 + kills)
    expect(settled.size).toBeGreaterThan(0)

    // Reading tasks went on in the attempt they were in. Writing ones began a new one, with a process of their own.
    using reader = RunReader.open(folder)
    const abandoned = Array.from(reader.events('attempt-abandoned'), ({ rollout }) => rollout)
    for (const { id, attempt, task } of records) {
      expect([id, attempt]).toEqual([id, 1 + abandoned.filter((rollout) => rollout === id).length])
      if (task.index % 2 === 0) expect([id, attempt]).toEqual([id, 1])
    }
    const served = Map.groupBy(
      notedCalls(log.path).filter(({ tool }) => tool === 'counter'),
      ({ pid }) => pid,
    )
    for (const calls of served.values()) expect(new Set(calls.map(attemptOf)).size).toBe(1)
  }),
)
