import { MillraceError } from '../../errors/index.ts'
import { AbortScope, offAbort, onAbort, Resource, timerMs } from './lifecycle.ts'

interface IdleResourcesOptions {
  /** Open at once; a further one takes the place of a released one, or is refused with `overloaded`. */
  readonly max: number
  /** One that nobody uses for this long is closed. */
  readonly idleMs: number
  /** Hears of a close that fails: nobody else waits for it. */
  readonly onFault: (error: unknown) => void
}

interface Entry<Value> {
  readonly value: Value
  users: number
  isReleased: boolean
  timer: NodeJS.Timeout | undefined
}

/** Resources by name, such as the sessions of clients that may never come back. They are closed when nobody uses them, and with this. */
export class IdleResources<Value extends Resource> extends Resource {
  readonly #options: IdleResourcesOptions
  readonly #entries = new Map<string, Entry<Value>>()
  readonly #unsettled = new Set<Promise<unknown>>()
  #opening = 0

  constructor(options: IdleResourcesOptions) {
    super()
    this.#options = options
  }

  /** How many are open or being opened. */
  get size(): number {
    return this.#entries.size + this.#opening
  }

  has(name: string): boolean {
    return this.#entries.has(name)
  }

  /** To look at: it is not in use by that. */
  get(name: string): Value | undefined {
    return this.#entries.get(name)?.value
  }

  /** Opens one in place of the one that has the name. `make` is told to stop when `signal` aborts, or this closes. */
  async open(name: string, make: (signal: AbortSignal) => Promise<Value>, signal?: AbortSignal): Promise<Value> {
    this.throwIfClosed()
    const { max } = this.#options
    await this.end(name)
    this.throwIfClosed()
    if (this.size >= max) this.#closeReleased()
    if (this.size >= max) {
      const message = `there are ${max} sessions, which is the limit; end one, or try again later`
      throw new MillraceError('overloaded', message)
    }
    this.#opening += 1
    return await this.#settled(this.#make(name, make, signal).finally(() => (this.#opening -= 1)))
  }

  /** Runs `work` with the one of this name, which does not count as idle meanwhile; undefined if there is none. */
  use<Result>(name: string, work: (value: Value) => Promise<Result>): Promise<Result> | undefined {
    const entry = this.#entries.get(name)
    return entry && this.#use(entry, work)
  }

  async #use<Result>(entry: Entry<Value>, work: (value: Value) => Promise<Result>): Promise<Result> {
    entry.users += 1
    entry.isReleased = false
    clearTimeout(entry.timer)
    try {
      return await work(entry.value)
    } finally {
      entry.users -= 1
      this.#watchIdle(entry)
    }
  }

  /** It has probably served its purpose: it makes room for others until it is used again. */
  release(name: string): void {
    const entry = this.#entries.get(name)
    if (entry?.users === 0) entry.isReleased = true
  }

  /** Resolves when it has closed, or there is none. Never rejects. */
  async end(name: string): Promise<void> {
    const entry = this.#entries.get(name)
    if (entry) await this.#close(entry.value)
  }

  protected async onClose(): Promise<void> {
    for (const { value } of this.#entries.values()) void this.#close(value)
    await Promise.allSettled(this.#unsettled)
  }

  async #make(name: string, make: (signal: AbortSignal) => Promise<Value>, signal?: AbortSignal): Promise<Value> {
    using scope = new AbortScope(signal)
    const stop = { handleEvent: () => scope.abort(this.closedSignal.reason) }
    onAbort(this.closedSignal, stop)
    try {
      const value = await make(scope.signal)
      if (!scope.signal.aborted) return this.#add(name, value)
      await this.#close(value)
      throw scope.signal.reason
    } finally {
      offAbort(this.closedSignal, stop)
    }
  }

  #add(name: string, value: Value): Value {
    const entry: Entry<Value> = { value, users: 0, isReleased: false, timer: undefined }
    const other = this.#entries.get(name)
    this.#entries.set(name, entry)
    if (other) void this.#close(other.value)
    // However it comes to its end.
    onAbort(value.closedSignal, {
      handleEvent: () => {
        clearTimeout(entry.timer)
        void this.#settled(value.close().catch(() => {}))
        if (this.#entries.get(name) === entry) this.#entries.delete(name)
      },
    })
    this.#watchIdle(entry)
    return value
  }

  #watchIdle(entry: Entry<Value>): void {
    const { value, users } = entry
    if (value.isClosed || users > 0) return
    entry.timer = setTimeout(() => void this.#close(value), timerMs(this.#options.idleMs))
  }

  /** The one that was opened first. Its place is free at once: whoever needs it does not wait for the end of the close. */
  #closeReleased(): void {
    for (const { value, isReleased } of this.#entries.values()) {
      if (!isReleased) continue
      void this.#close(value)
      return
    }
  }

  #close(value: Value): Promise<void> {
    // Whoever closed it first hears of what fails.
    return value.isClosed ? value.close().catch(() => {}) : value.close().catch(this.#options.onFault)
  }

  #settled<Result>(work: Promise<Result>): Promise<Result> {
    this.#unsettled.add(work)
    const forget = (): void => void this.#unsettled.delete(work)
    work.then(forget, forget)
    return work
  }
}
