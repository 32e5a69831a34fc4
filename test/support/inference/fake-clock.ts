import { vi } from 'vitest'

/** Time that passes only when a test says so, until it is disposed. */
export class FakeClock implements Disposable {
  /** `timeouts`: of these alone, so that sockets and the loop go on by themselves. */
  constructor(of: 'everything' | 'timeouts' = 'everything') {
    vi.useFakeTimers(of === 'timeouts' ? { toFake: ['setTimeout', 'clearTimeout'] } : {})
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
