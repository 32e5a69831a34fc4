import type { RolloutRecord } from '../schema/index.ts'
import { ActiveRequest, type ActiveRequestOptions } from './_active-request.ts'
import { planId } from './_plan-queue.ts'
import { RequestIndex } from './_request-index.ts'
import type { DueRollout } from './_request-plans.ts'
import { UnsettledRollouts, type UnsettledRollout } from './_unsettled-rollouts.ts'
import { rolloutCount, rolloutIds, type KnownRequest, type RolloutState } from './known-request.ts'
import { ResultReader } from './result-reader.ts'
import type { ServeBounds } from './serve-bounds.ts'

/** What a service knows of its requests: what an id stands for, what has not ended, and who reads which results. */
export class KnownRequests {
  readonly unsettled: UnsettledRollouts
  readonly #known: RequestIndex
  readonly #active = new Map<string, ActiveRequest>()
  readonly #onAbandoned: (request: KnownRequest) => void
  /** Why no more results will come. */
  #end: { readonly reason: unknown } | undefined

  constructor(bounds: ServeBounds, onAbandoned: (request: KnownRequest) => void) {
    this.unsettled = new UnsettledRollouts(bounds)
    this.#known = new RequestIndex(bounds.maxRememberedRequests, (id) => this.#active.has(id))
    this.#onAbandoned = onAbandoned
  }

  request(id: string): KnownRequest | undefined {
    return this.#known.get(id)
  }

  /** Newest first; of one id, if that is given, the one it stands for. */
  requests(id?: string): KnownRequest[] {
    if (id === undefined) return this.#known.newest()
    const known = this.#known.get(id)
    return known ? [known] : []
  }

  /** A request, and those of its rollouts that are due. */
  add(
    request: KnownRequest,
    due: readonly DueRollout[],
    how: Pick<ActiveRequestOptions, 'accepted' | 'graceMs'>,
  ): void {
    if (due.length > 0) this.#activate(request, due, how)
    // Only now: one that is not active might be forgotten at once.
    this.#known.add(request)
  }

  /** It could not be accepted, so it never was. */
  withdraw(request: KnownRequest): void {
    this.#known.remove(request.id)
    this.#active.delete(request.id)
    for (const rollout of rolloutIds(request)) this.unsettled.remove(rollout)
  }

  /** The results of a request: those that have ended first. Rejects if it could not be accepted. */
  async read(request: KnownRequest, role: 'owner' | 'onlooker'): Promise<ResultReader> {
    const active = this.#active.get(request.id)
    if (!active) return new ResultReader(rolloutCount(request), rolloutIds(request), () => {})
    await active.accepted
    const results = active.read(role)
    if (this.#end) active.fail(this.#end.reason)
    return results
  }

  settle(record: RolloutRecord): void {
    const request = this.unsettled.remove(record.id)?.request
    if (request?.settle(record)) this.#active.delete(request.request.id)
  }

  /** Those who still wait for results are told why none will come. */
  end(reason: unknown): void {
    this.#end = { reason }
    for (const active of this.#active.values()) active.fail(reason)
  }

  /** Of a rollout that exists. */
  stateOf(rollout: string): RolloutState {
    const unsettled = this.unsettled.get(rollout)
    if (!unsettled) return 'ended'
    return unsettled.state === 'running' ? 'running' : 'queued'
  }

  /** How many rollouts of a request run now. */
  runningOf(request: KnownRequest): number {
    return this.#active.get(request.id)?.running ?? 0
  }

  unsettledOf(request: KnownRequest): UnsettledRollout[] {
    if (!this.#active.has(request.id)) return []
    return Array.from(rolloutIds(request), (id) => this.unsettled.get(id) ?? []).flat()
  }

  readonly #isUnsettled = (rollout: string): boolean => this.unsettled.has(rollout)

  #activate(
    request: KnownRequest,
    due: readonly DueRollout[],
    how: Pick<ActiveRequestOptions, 'accepted' | 'graceMs'>,
  ): void {
    const active = new ActiveRequest({
      ...how,
      request,
      unsettled: due.length,
      isUnsettled: this.#isUnsettled,
      onAbandoned: this.#onAbandoned,
    })
    this.#active.set(request.id, active)
    for (const { plan, bytes } of due) {
      this.unsettled.add({ id: planId(plan), request: active, bytes, state: 'accepting' })
    }
  }
}
