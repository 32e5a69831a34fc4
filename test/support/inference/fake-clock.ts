import { vi } from 'vitest'

const faked = {
  everything: {},
  timeouts: { toFake: ['setTimeout', 'clearTimeout'] },
  now: { toFake: ['performance'] },
} satisfies Record<string, Parameters<typeof vi.useFakeTimers>[0]>

/** Time that passes only when a test says so, until it is disposed. */
export class FakeClock implements Disposable {
  /** `timeouts`: of these alone, so that sockets and the loop go on by themselves. `now`: of `performance.now()` alone. */
  constructor(of: keyof typeof faked = 'everything') {
    vi.useFakeTimers(faked[of])
  }

  get timers(): number {
    return vi.getTimerCount()
  }

  async pass(ms: number): Promise<void> {
    await vi.advanceTimersByTimeAsync(ms)
  }

  [Symbol.dispose](): void {
    vi.useRealTimers()
  }
}
