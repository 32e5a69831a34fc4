import { settlesWithin } from '../kit/index.ts'
import type { WorkerResult } from './channel/channel.ts'

/** The name under which deaths of workers are counted for a call: mostly a rollout's id. */
export type CallKey = string

interface UnansweredCall {
  readonly key: CallKey
  readonly task: number | undefined
  readonly resolve: (value: WorkerResult) => void
  readonly reject: (error: unknown) => void
}

export class UnansweredCalls {
  readonly #calls = new Map<number, UnansweredCall>()
  /** Calls whose caller waits no longer, and that the worker has not ended. */
  readonly #abandoned = new Map<number, CallKey>()
  #onEmpty: (() => void) | undefined

  get size(): number {
    return this.#calls.size
  }

  get keys(): readonly CallKey[] {
    return Array.from(this.#calls.values(), ({ key }) => key)
  }

  get abandonedKeys(): readonly CallKey[] {
    return [...this.#abandoned.values()]
  }

  keyOf(number: number): CallKey | undefined {
    return this.#calls.get(number)?.key ?? this.#abandoned.get(number)
  }

  hasTask(task: number): boolean {
    return this.#calls.values().some((call) => call.task === task)
  }

  add(number: number, call: UnansweredCall): void {
    this.#calls.set(number, call)
  }

  resolve(number: number, value: WorkerResult): void {
    this.#take(number)?.resolve(value)
  }

  reject(number: number, error: unknown): void {
    this.#take(number)?.reject(error)
  }

  /** Rejects a call whose caller waits no longer. The call stays listed, because it may still kill the worker. */
  abandon(number: number, error: unknown): void {
    const call = this.#take(number)
    if (!call) return
    this.#abandoned.set(number, call.key)
    call.reject(error)
  }

  rejectAll(error: unknown): void {
    this.#abandoned.clear()
    for (const number of this.#calls.keys()) this.reject(number, error)
  }

  /** Resolves when every call is answered, or after `limitMs`. One waiter at a time. */
  async empty(limitMs: number): Promise<void> {
    if (this.size === 0) return
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#onEmpty = resolve
    await settlesWithin(promise, limitMs)
  }

  #take(number: number): UnansweredCall | undefined {
    this.#abandoned.delete(number)
    const call = this.#calls.get(number)
    if (!call) return undefined
    this.#calls.delete(number)
    if (this.#calls.size === 0) this.#onEmpty?.()
    return call
  }
}
