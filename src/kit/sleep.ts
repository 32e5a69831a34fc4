import { timerMs } from './timer-ms.ts'

/** Resolves after `ms`; rejects with the signal's reason as soon as it aborts, and leaves neither timer nor listener. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  if (signal?.aborted) return Promise.reject(signal.reason)
  return new Promise((resolve, reject) => {
    const onAbort = (): void => {
      clearTimeout(timer)
      reject(signal?.reason)
    }
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', onAbort)
      resolve()
    }, timerMs(ms))
    signal?.addEventListener('abort', onAbort, { once: true })
  })
}
