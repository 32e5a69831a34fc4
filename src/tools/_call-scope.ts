import type { WrittenCall } from './written-call.ts'

/**
 * The signal of one tool call, made only if the tool asks for it: an AbortController for every call would cost more than
 * most tools do. It is also the handler of the proxy a tool gets as its context, which is the rollout's own in everything
 * but `signal`. A proxy, because a context may be a class with private fields, which an object derived from it could not
 * reach; that is also why getters and methods run on the context itself.
 *
 * The signal aborts when the call times out or its turn is stopped, and never once the call has ended.
 */
export class CallScope<Context extends object> implements ProxyHandler<Context> {
  readonly #call: WrittenCall
  #controller: AbortController | undefined
  #aborted: { readonly reason: unknown } | undefined

  constructor(call: WrittenCall) {
    this.#call = call
  }

  get(context: Context, key: string | symbol): unknown {
    if (key === 'signal') return this.#signal()
    const value: unknown = Reflect.get(context, key)
    if (typeof value !== 'function') return value
    // What these start ends with the call that started it: they take a signal as their second argument, the call as their third.
    if (key === 'child' || key === 'judge')
      return (request: unknown) => value.call(context, request, this.#signal(), this.#call)
    return value.bind(context)
  }

  abort(reason: unknown): void {
    this.#aborted = { reason }
    this.#controller?.abort(reason)
  }

  #signal(): AbortSignal {
    if (!this.#controller) {
      this.#controller = new AbortController()
      if (this.#aborted) this.#controller.abort(this.#aborted.reason)
    }
    return this.#controller.signal
  }
}
