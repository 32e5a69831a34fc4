import { fork, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { Worker } from 'node:worker_threads'
import { describe, expect, test } from 'vitest'
import type { Order } from '../fixtures/blocking.ts'
import { activeResources, leftSince } from '../../src/kit/_testing/active-resources.ts'
import { BlockedLoopWatch, type FoundBlock } from '../../src/worker/blocked-loop-watch.ts'
import { nameBlockedFunction, type BlockedTarget } from '../../src/worker/blocked-function.ts'

const fixture = new URL('../fixtures/blocking.ts', import.meta.url)
const path = fileURLToPath(fixture)
const never = new AbortController().signal

interface Blocking extends AsyncDisposable {
  readonly target: BlockedTarget
  order(order: Order): void
  /** Resolves to what it says next. */
  said(): Promise<string>
  end(): Promise<void>
}

async function startThread(): Promise<Blocking> {
  const worker = new Worker(fixture)
  await once(worker, 'message')
  const end = async () => void (await worker.terminate())
  return {
    target: { kind: 'thread', worker },
    order: (order) => worker.postMessage(order),
    said: async () => String((await once(worker, 'message'))[0]),
    end,
    [Symbol.asyncDispose]: end,
  }
}

async function startProcess(probe: 'pipe' | 'ignore' = 'pipe'): Promise<Blocking & { child: ChildProcess }> {
  const child = fork(path, { stdio: ['ignore', 'inherit', 'inherit', 'ipc', probe], execArgv: ['--no-warnings'] })
  const exited = once(child, 'exit')
  await once(child, 'message')
  const end = async () => {
    child.kill('SIGKILL')
    await exited
  }
  return {
    child,
    target: { kind: 'process', child },
    order: (order) => void child.send(order),
    said: async () => String((await once(child, 'message'))[0]),
    end,
    [Symbol.asyncDispose]: end,
  }
}

/** A file that ends a block once it is written. */
async function releaseFile() {
  const folder = await mkdtemp(join(tmpdir(), 'millrace-blocked-'))
  const file = join(folder, 'go')
  return {
    file,
    write: () => writeFileSync(file, ''),
    [Symbol.asyncDispose]: () => rm(folder, { recursive: true, force: true }),
  }
}

async function answers(blocking: Blocking): Promise<string> {
  const said = blocking.said()
  blocking.order({ kind: 'answer' })
  return await said
}

describe.each([
  ['thread', startThread],
  ['process', () => startProcess()],
] as const)('a %s', (_kind, start) => {
  test('that runs a loop is named by its function, again and again, and goes on afterwards', async () => {
    await using release = await releaseFile()
    await using blocking = await start()
    const busy = blocking.said()
    blocking.order({ kind: 'spin', until: release.file })
    await busy
    const named = new RegExp(String.raw`^spinUntil \(${RegExp.escape(path)}:\d+\)$`)
    // The first look at a process waits for its probe to start.
    await expect.poll(() => nameBlockedFunction(blocking.target, never)).toMatch(named)
    const looks = Array.from({ length: 5 }, () => nameBlockedFunction(blocking.target, never))
    for (const name of await Promise.all(looks)) expect(name).toMatch(named)
    const free = blocking.said()
    release.write()
    expect(await free).toBe('free')
    expect(await answers(blocking)).toBe('free')
  })

  test('that is idle is not named, and is not stopped by the look when it wakes up', async () => {
    await using blocking = await start()
    for (let round = 0; round < 3; round += 1) {
      expect(await nameBlockedFunction(blocking.target, never)).toBeUndefined()
      expect(await answers(blocking)).toBe('free')
    }
  })

  test('in a native call is not stopped by the look when the call returns', async () => {
    await using blocking = await start()
    const busy = blocking.said()
    blocking.order({ kind: 'native' })
    await busy
    const free = blocking.said()
    // Undefined, unless the look came before the call did.
    expect((await nameBlockedFunction(blocking.target, AbortSignal.timeout(200))) ?? 'waitNatively').toContain(
      'waitNatively',
    )
    expect(await free).toBe('free')
    expect(await answers(blocking)).toBe('free')
  })

  test('that has ended, or that nobody waits for, is not named', async () => {
    await using blocking = await start()
    expect(await nameBlockedFunction(blocking.target, AbortSignal.abort())).toBeUndefined()
    expect(await answers(blocking)).toBe('free')
    await blocking.end()
    expect(await nameBlockedFunction(blocking.target, never)).toBeUndefined()
  })

  test('that is ended while somebody looks at it ends, and takes nobody along', async () => {
    for (let round = 0; round < 8; round += 1) {
      await using release = await releaseFile()
      await using blocking = await start()
      const busy = blocking.said()
      blocking.order({ kind: 'spin', until: release.file })
      await busy
      const looks = [nameBlockedFunction(blocking.target, never), nameBlockedFunction(blocking.target, never)]
      await setTimeout(round * 2)
      await blocking.end()
      for (const name of await Promise.all(looks)) expect(name ?? 'spinUntil').toContain('spinUntil')
    }
  })

  test('leaves nothing open', async () => {
    const before = activeResources()
    {
      await using blocking = await start()
      await nameBlockedFunction(blocking.target, AbortSignal.timeout(50))
    }
    expect(await leftSince(before)).toEqual([])
  })
})

test('a process that was stopped, and one without a probe, are not named', async () => {
  await using blocking = await startProcess()
  blocking.child.kill('SIGSTOP')
  expect(await nameBlockedFunction(blocking.target, AbortSignal.timeout(100))).toBeUndefined()
  blocking.child.kill('SIGCONT')
  expect(await answers(blocking)).toBe('free')
  await using bare = await startProcess('ignore')
  expect(await nameBlockedFunction(bare.target, never)).toBeUndefined()
})

describe('a watch', () => {
  test('says once what blocks a loop each time it falls silent, for how long, and is quiet about one that does not', async () => {
    await using release = await releaseFile()
    await using secondRelease = await releaseFile()
    await using blocking = await startThread()
    const seen: FoundBlock[] = []
    const { target } = blocking
    using watch = new BlockedLoopWatch({ target, thresholdMs: 1_000, onBlocked: (blocked) => seen.push(blocked) })
    for (let beats = 0; beats < 20; beats += 1) {
      await answers(blocking)
      watch.beat()
    }
    expect(seen).toEqual([])
    const busy = blocking.said()
    blocking.order({ kind: 'spin', until: release.file })
    await busy
    await expect.poll(() => seen.length).toBe(1)
    expect(seen[0]?.blockedBy).toContain('spinUntil')
    expect(seen[0]?.lagMs).toBeGreaterThan(990)
    const free = blocking.said()
    release.write()
    await free
    const heardAt = performance.now()
    watch.beat()
    expect(seen).toHaveLength(1)
    const busyAgain = blocking.said()
    blocking.order({ kind: 'spin', until: secondRelease.file })
    await busyAgain
    await expect.poll(() => seen.length).toBe(2)
    expect(seen[1]?.lagMs).toBeGreaterThan(990)
    expect(seen[1]?.lagMs, 'counted from the last beat').toBeLessThan(performance.now() - heardAt)
    const freeAgain = blocking.said()
    secondRelease.write()
    await freeAgain
  })

  test('names what a native call belongs to once it returns', async () => {
    await using blocking = await startThread()
    const { promise, resolve } = Promise.withResolvers<FoundBlock>()
    const busy = blocking.said()
    blocking.order({ kind: 'native' })
    await busy
    using _watch = new BlockedLoopWatch({ target: blocking.target, thresholdMs: 20, onBlocked: resolve })
    expect((await promise).blockedBy).toMatch(/^(waitNatively|onOrder) /)
  })
})
