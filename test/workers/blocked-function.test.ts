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
import { activeResources, leftSince } from '../support/kit/active-resources.ts'
import { nameBlockedThread } from '../../src/kit/index.ts'

const fixture = new URL('../fixtures/blocking.ts', import.meta.url)
const path = fileURLToPath(fixture)
const never = new AbortController().signal

interface Blocking extends AsyncDisposable {
  readonly thread: Worker
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
    thread: worker,
    order: (order) => worker.postMessage(order),
    said: async () => String((await once(worker, 'message'))[0]),
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

describe('a thread', () => {
  test('that runs a loop is named by its function, repeatedly, and continues afterwards', async () => {
    await using release = await releaseFile()
    await using blocking = await startThread()
    const busy = blocking.said()
    blocking.order({ kind: 'spin', until: release.file })
    await busy
    const named = new RegExp(String.raw`^spinUntil \(${RegExp.escape(path)}:\d+\)$`)
    await expect.poll(() => nameBlockedThread(blocking.thread, never)).toMatch(named)
    const looks = Array.from({ length: 5 }, () => nameBlockedThread(blocking.thread, never))
    for (const name of await Promise.all(looks)) expect(name).toMatch(named)
    const free = blocking.said()
    release.write()
    expect(await free).toBe('free')
    expect(await answers(blocking)).toBe('free')
  })

  test('that is idle is not named, and does not pause when it wakes up', async () => {
    await using blocking = await startThread()
    for (let round = 0; round < 3; round += 1) {
      expect(await nameBlockedThread(blocking.thread, never)).toBeUndefined()
      expect(await answers(blocking)).toBe('free')
    }
  })

  test('in a native call does not pause when the call returns', async () => {
    await using blocking = await startThread()
    const busy = blocking.said()
    blocking.order({ kind: 'native' })
    await busy
    const free = blocking.said()
    // Undefined, unless the look came before the call did.
    expect((await nameBlockedThread(blocking.thread, AbortSignal.timeout(200))) ?? 'waitNatively').toContain(
      'waitNatively',
    )
    expect(await free).toBe('free')
    expect(await answers(blocking)).toBe('free')
  })

  test('that has ended, or whose query was aborted, is not named', async () => {
    await using blocking = await startThread()
    expect(await nameBlockedThread(blocking.thread, AbortSignal.abort())).toBeUndefined()
    expect(await answers(blocking)).toBe('free')
    await blocking.end()
    expect(await nameBlockedThread(blocking.thread, never)).toBeUndefined()
  })

  test('that is terminated during a query ends, and the process continues', async () => {
    for (let round = 0; round < 8; round += 1) {
      await using release = await releaseFile()
      await using blocking = await startThread()
      const busy = blocking.said()
      blocking.order({ kind: 'spin', until: release.file })
      await busy
      const looks = [nameBlockedThread(blocking.thread, never), nameBlockedThread(blocking.thread, never)]
      await setTimeout(round * 2)
      await blocking.end()
      for (const name of await Promise.all(looks)) expect(name ?? 'spinUntil').toContain('spinUntil')
    }
  })

  test('leaves no resources open after a query', async () => {
    const before = activeResources()
    {
      await using blocking = await startThread()
      await nameBlockedThread(blocking.thread, AbortSignal.timeout(50))
    }
    expect(await leftSince(before)).toEqual([])
  })
})
