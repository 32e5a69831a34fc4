import { channel } from 'node:diagnostics_channel'
import { MillraceError } from '../../errors/index.ts'

export interface AbortListener {
  handleEvent(): void
}

const listeners = Symbol('listeners')

interface SourcedSignal extends AbortSignal {
  [listeners]?: ArraySet<AbortListener>
}

/**
 * An `AbortController` that is cheap to listen to: in Node 24 a listener of an event target outlives young collections, with
 * all it holds (a quarter of what a gateway allocated). Listeners that use `onAbort` avoid that.
 */
export class AbortSource {
  readonly #controller = new AbortController()
  readonly #listeners = new ArraySet<AbortListener>()

  constructor() {
    const signal: SourcedSignal = this.#controller.signal
    signal[listeners] = this.#listeners
  }

  get signal(): AbortSignal {
    return this.#controller.signal
  }

  abort(reason: unknown): void {
    if (this.signal.aborted) return
    this.#controller.abort(reason)
    for (const listener of this.#listeners) listener.handleEvent()
  }
}

/**
 * A child of an abort signal, with an optional deadline, that leaves nothing behind when it is disposed.
 * `AbortSignal.any` with `AbortSignal.timeout` keeps its timer and listeners until the timer fires.
 */
export class AbortScope extends AbortSource implements Disposable, AbortListener {
  readonly #parent: AbortSignal | undefined
  #timer: NodeJS.Timeout | undefined

  constructor(parent: AbortSignal | undefined, timeoutMs?: number, timeoutReason?: () => unknown) {
    super()
    this.#parent = parent
    if (parent?.aborted) {
      this.abort(parent.reason)
      return
    }
    if (parent) onAbort(parent, this)
    if (timeoutMs !== undefined) {
      this.#timer = setTimeout(() => {
        this.abort(timeoutReason ? timeoutReason() : new MillraceError('cancelled', `took longer than ${timeoutMs} ms`))
      }, timerMs(timeoutMs))
    }
  }

  override abort(reason: unknown): void {
    this[Symbol.dispose]()
    super.abort(reason)
  }

  /** The parent aborted. */
  handleEvent(): void {
    this.abort(this.#parent?.reason)
  }

  [Symbol.dispose](): void {
    clearTimeout(this.#timer)
    if (this.#parent) offAbort(this.#parent, this)
  }
}

/** Calls the listener when the signal aborts, until `offAbort`. Never called if the signal has aborted already. */
export function onAbort(signal: AbortSignal, listener: AbortListener): void {
  const own = (signal as SourcedSignal)[listeners]
  if (own) own.add(listener)
  else signal.addEventListener('abort', listener)
}

export function offAbort(signal: AbortSignal, listener: AbortListener): void {
  const own = (signal as SourcedSignal)[listeners]
  if (own) own.delete(listener)
  else signal.removeEventListener('abort', listener)
}

/** The result of `work`, or the signal's reason as soon as it aborts: for work that may not listen to the signal itself. */
export function withAbort<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  const { promise, resolve, reject } = Promise.withResolvers<T>()
  const listener = { handleEvent: () => fail(signal.reason) }
  const fail = (error: unknown): void => {
    offAbort(signal, listener)
    reject(error)
  }
  if (signal.aborted) reject(signal.reason)
  else onAbort(signal, listener)
  work.then((result) => {
    offAbort(signal, listener)
    resolve(result)
  }, fail)
  return promise
}

/** The longest delay of a timer, about 25 days. */
export const maxTimerMs = 2 ** 31 - 1

/** A delay that a timer can take. Node turns longer ones, such as `Infinity`, into a millisecond. */
export function timerMs(ms: number): number {
  return Math.min(Math.max(ms, 0), maxTimerMs)
}

/** Resolves after `ms`; rejects with the signal's reason as soon as it aborts, and leaves neither timer nor listener. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  if (signal?.aborted) return Promise.reject(signal.reason)
  return new Promise((resolve, reject) => {
    const listener = {
      handleEvent: () => {
        clearTimeout(timer)
        if (signal) offAbort(signal, listener)
        reject(signal?.reason)
      },
    }
    const timer = setTimeout(() => {
      if (signal) offAbort(signal, listener)
      resolve()
    }, timerMs(ms))
    if (signal) onAbort(signal, listener)
  })
}

/** Whether the work ends in time. If not, it goes on. No timer is left behind. */
export async function settlesWithin(work: Promise<unknown>, ms: number): Promise<boolean> {
  const { promise: late, resolve } = Promise.withResolvers<false>()
  const timer = setTimeout(() => resolve(false), timerMs(ms))
  const ends = work.then(() => true)
  return Promise.race([ends, late]).finally(() => clearTimeout(timer))
}

/** Waits that grow exponentially, with jitter, so that callers that failed together do not return together. */
export interface Backoff {
  readonly firstMs: number
  readonly maxMs: number
  readonly factor: number
}

/** `retry` is 1 for the first repetition. The wait is between half and all of the exponential step. */
export function backoffMs(backoff: Backoff, retry: number, random: () => number = Math.random): number {
  const step = Math.min(backoff.maxMs, backoff.firstMs * backoff.factor ** (retry - 1))
  return step * (0.5 + 0.5 * random())
}

/**
 * An unordered set for members that come and go by the thousand a second. The tables of a `Set` survive every young
 * collection, with everything their members hold: a third of what a gateway allocated.
 */
export class ArraySet<T> implements Iterable<T> {
  readonly #members: T[] = []

  get size(): number {
    return this.#members.length
  }

  add(member: T): void {
    this.#members.push(member)
  }

  delete(member: T): boolean {
    const at = this.#members.lastIndexOf(member)
    if (at === -1) return false
    const last = this.#members.pop() as T
    if (at < this.#members.length) this.#members[at] = last
    return true
  }

  /** Iterates over a copy, so that members may leave meanwhile. */
  [Symbol.iterator](): Iterator<T> {
    return Array.from(this.#members)[Symbol.iterator]()
  }
}

/** A holder of a socket, a thread, a file or a timer. `close` runs once; all callers await the same end. */
export abstract class Resource implements AsyncDisposable {
  readonly #controller = new AbortController()
  #closing: Promise<void> | undefined

  get isClosed(): boolean {
    return this.#closing !== undefined
  }

  get closedSignal(): AbortSignal {
    return this.#controller.signal
  }

  close(reason?: unknown): Promise<void> {
    if (this.#closing) return this.#closing
    const { promise, resolve, reject } = Promise.withResolvers<void>()
    this.#closing = promise
    this.#controller.abort(reason ?? new MillraceError('closed', `${this.constructor.name} is closed`))
    Promise.try(() => this.onClose()).then(resolve, reject)
    return promise
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  protected throwIfClosed(): void {
    if (this.isClosed) throw this.#controller.signal.reason
  }

  protected abstract onClose(): Promise<void> | void
}

/** Closes resources at once that do not depend on each other. All are tried; failures are thrown together at the end. */
export async function closeTogether(resources: Iterable<{ close(): Promise<void> }>): Promise<void> {
  const ends = await Promise.allSettled(Array.from(resources, (resource) => resource.close()))
  const failures = ends.flatMap((end) => (end.status === 'rejected' ? [end.reason as unknown] : []))
  if (failures.length === 1) throw failures[0]
  if (failures.length > 1) throw new AggregateError(failures, 'several parts failed to close')
}

/** A diagnostics channel whose messages have a type. Publishers check `hasSubscribers` before making an event. */
export class EventChannel<Event> {
  readonly #channel

  constructor(name: `millrace:${string}`) {
    this.#channel = channel(name)
  }

  get hasSubscribers(): boolean {
    return this.#channel.hasSubscribers
  }

  publish(event: Event): void {
    this.#channel.publish(event)
  }

  /** Listens until disposed. A listener must not throw: that would end the process. */
  subscribe(listener: (event: Event) => void): Disposable {
    const onMessage = (message: unknown): void => listener(message as Event)
    this.#channel.subscribe(onMessage)
    return { [Symbol.dispose]: () => this.#channel.unsubscribe(onMessage) }
  }
}
