import { offAbort, onAbort } from './abort-source.ts'

/**
 * The result of `work`, or the signal's reason as soon as it aborts, whichever is first: for work that may not listen
 * to the signal itself. What such work comes to afterwards is dropped.
 */
export function raced<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  if (signal.aborted) {
    work.catch(() => {})
    return Promise.reject(signal.reason)
  }
  return new Promise<T>((resolve, reject) => {
    const listener = {
      handleEvent: (): void => {
        offAbort(signal, listener)
        reject(signal.reason)
      },
    }
    onAbort(signal, listener)
    // Both ends by hand: `finally` would take two promises more, for as long as the work lasts.
    work.then(
      (result) => {
        offAbort(signal, listener)
        resolve(result)
      },
      (error: unknown) => {
        offAbort(signal, listener)
        reject(error)
      },
    )
  })
}
