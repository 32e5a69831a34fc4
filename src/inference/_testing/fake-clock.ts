import { vi } from 'vitest'

/** Time that passes only when a test says so, until it is disposed. */
export class FakeClock implements Disposable {
  constructor() {
    vi.useFakeTimers()
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
