import { getEventListeners } from 'node:events'
import { describe, expect, test } from 'vitest'
import { MillraceError } from '../../errors/index.ts'
import {
  type AbortListener,
  AbortScope,
  AbortSource,
  offAbort,
  onAbort,
  withAbort,
  Resource,
  sleep,
} from './lifecycle.ts'

class Counting implements AbortListener {
  count = 0

  handleEvent(): void {
    this.count += 1
  }
}

const makers = [
  ['a source', () => new AbortSource()],
  ['a plain controller', () => new AbortController()],
] as const

test.each(makers)('%s notifies each listener once', (_name, make) => {
  const source = make()
  const [stays, leaves, standard] = [new Counting(), new Counting(), new Counting()]
  onAbort(source.signal, stays)
  onAbort(source.signal, leaves)
  source.signal.addEventListener('abort', standard)
  offAbort(source.signal, leaves)
  source.abort('first')
  source.abort('second')
  expect([stays.count, leaves.count, standard.count]).toEqual([1, 0, 1])
  expect(source.signal.reason).toBe('first')
})

test('listeners may be removed while they are notified', () => {
  const source = new AbortSource()
  const received: string[] = []
  const first: AbortListener = {
    handleEvent: () => {
      received.push('first')
      offAbort(source.signal, first)
    },
  }
  onAbort(source.signal, first)
  onAbort(source.signal, { handleEvent: () => received.push('second') })
  source.abort('end')
  expect(received).toEqual(['first', 'second'])
})

class Probe extends Resource {
  closes = 0
  readonly #close: () => Promise<void> | void

  constructor(close: () => Promise<void> | void = () => {}) {
    super()
    this.#close = close
  }

  protected onClose(): Promise<void> | void {
    this.closes += 1
    return this.#close()
  }
}

const activeTimers = (): number => process.getActiveResourcesInfo().filter((kind) => kind === 'Timeout').length

describe('Resource', () => {
  test('closes once, and every caller awaits the same promise', async () => {
    const { promise, resolve } = Promise.withResolvers<void>()
    const probe = new Probe(() => promise)
    const both = Promise.all([probe.close(), probe.close(), probe[Symbol.asyncDispose]()])
    expect(probe.isClosed).toBe(true)
    expect(probe.closedSignal.aborted).toBe(true)
    resolve()
    await both
    await probe.close()
    expect(probe.closes).toBe(1)
  })

  test('a failing close fails for everyone who awaits it', async () => {
    const probe = new Probe(() => {
      throw new Error('stuck')
    })
    await expect(probe.close()).rejects.toThrow('stuck')
    await expect(probe.close()).rejects.toThrow('stuck')
  })

  test('the error names every part that failed to close', async () => {
    const failing = (text: string) => () => Promise.reject(new Error(text))
    const probe = new Probe(async () => {
      await using parts = new AsyncDisposableStack()
      for (const text of ['a', 'b', 'c']) parts.defer(failing(text))
    })
    const error: unknown = await probe.close().catch((thrown: unknown) => thrown)
    expect(MillraceError.from(error, 'internal').rawMessage).toBe('c; b; a')
  })
})

describe('AbortScope', () => {
  test('follows its parent and leaves no listener behind', () => {
    const parent = new AbortController()
    const scope = new AbortScope(parent.signal)
    parent.abort('why')
    expect(scope.signal.reason).toBe('why')
    expect(getEventListeners(parent.signal, 'abort')).toHaveLength(0)
  })

  test('is aborted from the start under an aborted parent', () => {
    const timersBefore = activeTimers()
    expect(new AbortScope(AbortSignal.abort('gone'), 60_000).signal.reason).toBe('gone')
    expect(activeTimers()).toBe(timersBefore)
  })

  test('its deadline aborts with a reason of its own, and disposal clears the timer', async () => {
    using late = new AbortScope(undefined, 1, () => 'late')
    await expect(withAbort(new Promise<never>(() => {}), late.signal)).rejects.toBe('late')
    const timersBefore = activeTimers()
    {
      using _scope = new AbortScope(undefined, 60_000)
      expect(activeTimers()).toBe(timersBefore + 1)
    }
    expect(activeTimers()).toBe(timersBefore)
  })

  test.each([2 ** 31, Infinity])('a deadline of %d ms does not fire at once', async (timeoutMs) => {
    using scope = new AbortScope(undefined, timeoutMs)
    // One that is too long for a timer would have fired by the time another has.
    await sleep(20)
    expect(scope.signal.aborted).toBe(false)
  })
})

describe('sleep and withAbort', () => {
  test('reject at once when aborted, with no listener left', async () => {
    const controller = new AbortController()
    const waits = [sleep(60_000, controller.signal), withAbort(new Promise(() => {}), controller.signal)]
    controller.abort('stop')
    expect(await Promise.allSettled(waits)).toEqual([
      { status: 'rejected', reason: 'stop' },
      { status: 'rejected', reason: 'stop' },
    ])
    expect(getEventListeners(controller.signal, 'abort')).toHaveLength(0)
  })

  test('withAbort leaves no listener when the work wins', async () => {
    const controller = new AbortController()
    expect(await withAbort(Promise.resolve(7), controller.signal)).toBe(7)
    await Promise.resolve()
    expect(getEventListeners(controller.signal, 'abort')).toHaveLength(0)
  })
})
