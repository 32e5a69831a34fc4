import { MillraceError } from '../errors/index.ts'
import { AbortSource } from '../kit/index.ts'
import type { ToolReports } from '../schema/index.ts'
import type { AskingCall } from './asking-call.ts'
import type { WrittenCall } from './written-call.ts'

/**
 * The signal of one tool call, made only if the tool asks for it: an AbortController for every call would cost more than most
 * tools do. It is also the handler of the proxy a tool gets as its context, which is the rollout's own in everything but
 * `signal`. A proxy, because a context may be a class with private fields, which an object derived from it could not reach; that
 * is also why getters and methods run on the context itself.
 *
 * The signal aborts when the call times out or its turn is stopped, and never once the call has ended: what a tool has started
 * under it, a process perhaps, may outlive the call. Children and judges that the tool asked may not, so they have another
 * signal.
 */
export class CallScope<Context extends object> implements ProxyHandler<Context>, AskingCall {
  readonly call: WrittenCall
  #own: AbortController | undefined
  #asked: AbortSource | undefined
  #reports: ToolReports | undefined
  #end: 'ended' | { readonly reason: unknown } | undefined

  constructor(call: WrittenCall) {
    this.call = call
  }

  get(context: Context, key: string | symbol): unknown {
    if (key === 'signal') return this.#ownSignal()
    const value: unknown = Reflect.get(context, key)
    if (typeof value !== 'function') return value
    // Children and judges end with the call that started them: these functions take a signal as second argument, the call as
    // third.
    if (key === 'child' || key === 'judge')
      return (request: unknown) => value.call(context, request, this.#askedSignal(), this)
    // Metrics and notes are kept with the call, which these functions take as third argument.
    if (key === 'metric' || key === 'note')
      return (name: unknown, said: unknown) => value.call(context, name, said, this)
    return value.bind(context)
  }

  get reports(): ToolReports {
    return (this.#reports ??= {})
  }

  /** A copy of what the call has reported so far; undefined if that is nothing. */
  get reported(): ToolReports | undefined {
    const { metrics, notes } = this.#reports ?? {}
    return metrics || notes
      ? { ...(metrics && { metrics: { ...metrics } }), ...(notes && { notes: { ...notes } }) }
      : undefined
  }

  abort(reason: unknown): void {
    this.#end = { reason }
    this.#own?.abort(reason)
    this.#asked?.abort(reason)
  }

  /** The call has ended: children and judges that it asked are given up, as nobody waits for them any more. */
  end(): void {
    this.#end = 'ended'
    this.#asked?.abort(hasEnded())
  }

  #ownSignal(): AbortSignal {
    if (!this.#own) {
      this.#own = new AbortController()
      if (typeof this.#end === 'object') this.#own.abort(this.#end.reason)
    }
    return this.#own.signal
  }

  #askedSignal(): AbortSignal {
    if (!this.#asked) {
      this.#asked = new AbortSource()
      if (this.#end) this.#asked.abort(this.#end === 'ended' ? hasEnded() : this.#end.reason)
    }
    return this.#asked.signal
  }
}

function hasEnded(): MillraceError {
  return new MillraceError('cancelled', 'the tool call that asked for it has ended')
}
