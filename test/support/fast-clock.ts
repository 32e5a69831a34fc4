import { vi } from 'vitest'

/** More than a test may take: a limit of so much runs out when a test lets it pass, and however slow the machine is, not before. */
export const longMs = 300_000

/**
 * A clock that goes on by itself, so that whatever waits for a moment goes on, and that runs ahead when a test says so.
 * For `performance.now()` and timers of this thread, until it is disposed.
 */
export class HurriedClock implements Disposable {
  constructor() {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'], shouldAdvanceTime: true })
    // It starts at 0, which could be taken for never.
    this.pass(1)
  }

  pass(ms: number): void {
    vi.advanceTimersByTime(ms)
  }

  [Symbol.dispose](): void {
    vi.useRealTimers()
  }
}
