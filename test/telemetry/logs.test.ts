import { execFile } from 'node:child_process'
import { constants } from 'node:fs'
import { open, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { runScripted, temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import type { WorkerStatus } from '../../src/rollout/index.ts'
import { LagLogger, Logger, traceIdOf, type LogLevel } from '../../src/telemetry/index.ts'
import { answer, household } from '../support/telemetry/parent-and-child-environment.ts'

const calm = { p99Ms: 1, maxMs: 3, meanMs: 0.5, utilization: 0.25 }
const worker: WorkerStatus = {
  id: 3,
  kind: 'thread',
  state: 'ready',
  running: 1,
  lag: calm,
  memoryBytes: 1,
  restarts: 0,
}

/** A real descriptor to log to, and the lines that arrived there. */
async function logFile(level: LogLevel) {
  const folder = await temporaryRuns()
  const path = join(folder.root, 'log')
  const file = await open(path, 'a')
  const logger = new Logger({ level, fd: file.fd })
  return {
    logger,
    lines: async (): Promise<Record<string, unknown>[]> => {
      await logger.close()
      const text = await readFile(path, 'utf8')
      return text
        .split('\n')
        .filter((line) => line !== '')
        .map((line) => JSON.parse(line) as Record<string, unknown>)
    },
    [Symbol.asyncDispose]: async () => {
      await file.close()
      await folder[Symbol.asyncDispose]()
    },
  }
}

test('a settled rollout is one log line with its ids and its trace id', async () => {
  await using log = await logFile('info')
  const { records } = await runScripted({
    environment: household,
    script: ({ messages, sessionId }) => {
      if (sessionId === '1-0') throw new Error('no')
      return answer(messages)
    },
  })
  for (const record of records) log.logger.rolloutSettled('night', record)
  log.logger.lines.debug('not asked for')
  const lines = await log.lines()
  expect(lines).toMatchObject([
    {
      level: 'info',
      run: 'night',
      rollout: '0-0',
      attempt: 1,
      trace_id: traceIdOf('night', '0-0', 1),
      outcome: 'completed',
    },
    { level: 'warn', rollout: '1-0', outcome: 'model_error', error: { code: 'model_server_error' } },
  ])
  expect(lines).toHaveLength(2)
  expect(Date.parse(String(lines[0]?.['time']))).toBeGreaterThan(0)
  expect(JSON.stringify(lines)).not.toContain('Run the house')
})

test('a loop above the lag threshold is logged once, with the blocking function, and once when it recovers', async () => {
  await using log = await logFile('info')
  let workers: WorkerStatus[] = [worker]
  let front = calm
  using watch = new LagLogger({
    logger: log.logger,
    thresholdMs: 100,
    loops: () => ({ front }),
    workers: () => workers,
  })
  watch.look()
  front = { ...calm, maxMs: 250 }
  workers = [{ ...worker, state: 'silent', blockedBy: 'reward (environment.ts:12)' }]
  watch.look()
  watch.look()
  front = calm
  workers = [worker]
  watch.look()
  expect(await log.lines()).toMatchObject([
    { level: 'warn', msg: 'event loop lags', loop: 'front', thresholdMs: 100, lag: { maxMs: 250 } },
    {
      level: 'warn',
      msg: 'event loop lags',
      loop: 'worker-3',
      state: 'silent',
      blockedBy: 'reward (environment.ts:12)',
    },
    { level: 'info', msg: 'event loop no longer lags', loop: 'front' },
    { level: 'info', msg: 'event loop no longer lags', loop: 'worker-3' },
  ])
})

test('a log reader that stops costs lines, not time, and later gets the number of dropped lines', async () => {
  await using folder = await temporaryRuns()
  const path = join(folder.root, 'pipe')
  await promisify(execFile)('mkfifo', [path])
  await using pipe = await open(path, constants.O_RDWR | constants.O_NONBLOCK)
  await using logger = new Logger({ fd: pipe.fd })
  const filler = 'x'.repeat(1000)
  for (let count = 0; count < 10_000; count += 1) logger.lines.info({ count, filler }, 'many')
  let received = ''
  const read = async (): Promise<string> => {
    const { bytesRead, buffer } = await pipe.read({ buffer: Buffer.alloc(65_536) }).catch(() => nothing)
    received += buffer.toString('utf8', 0, bytesRead)
    return received
  }
  await expect.poll(read, { interval: 1 }).toContain('"count":1000,')
  logger.lines.info('after the gap')
  await expect.poll(read, { interval: 1 }).toContain('after the gap')
  const lines = received.trimEnd().split('\n')
  const counts = lines.slice(0, -2).map((line) => (JSON.parse(line) as { count: number }).count)
  expect(counts).toEqual(counts.map((_, index) => index))
  expect(lines.at(-2)).toContain(`${10_000 - counts.length} lines were dropped`)
})

const nothing = { bytesRead: 0, buffer: Buffer.alloc(0) }

test('a descriptor that cannot be written does not end the process', async () => {
  await using folder = await temporaryRuns()
  const path = join(folder.root, 'log')
  await writeFile(path, '')
  // Not a closed one: somebody else may have its number by then.
  await using file = await open(path, 'r')
  await using logger = new Logger({ fd: file.fd })
  for (let count = 0; count < 10; count += 1) logger.lines.info('nobody reads this')
  // The write fails before anybody waits for it.
  await expect.poll(() => process.getActiveResourcesInfo()).not.toContain('FSReqCallback')
  await logger.close()
  expect(await readFile(path, 'utf8')).toBe('')
})
