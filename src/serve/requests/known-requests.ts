import type { RolloutRecord } from '../../schema/index.ts'
import { planId, type UnsettledRollout, UnsettledRollouts } from '../rollouts/pending-rollouts.ts'
import type { ServeBounds } from '../rollouts/service-parts.ts'
import { ActiveRequest, type ActiveRequestOptions, ResultReader } from './active-request.ts'
import { type PendingRollout, type KnownRequest, rolloutCount, rolloutIds, type RolloutState } from './known-request.ts'

export class KnownRequests {
  readonly unsettled: UnsettledRollouts
  readonly #known: RequestIndex
  readonly #active = new Map<string, ActiveRequest>()
  readonly #onAbandoned: (request: KnownRequest) => void
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

  add(
    request: KnownRequest,
    due: readonly PendingRollout[],
    how: Pick<ActiveRequestOptions, 'accepted' | 'graceMs'>,
  ): void {
    if (due.length > 0) {
      const active = new ActiveRequest({
        ...how,
        request,
        unsettled: due.length,
        isUnsettled: (rollout) => this.unsettled.has(rollout),
        onAbandoned: this.#onAbandoned,
      })
      this.#active.set(request.id, active)
      for (const { plan, bytes } of due) {
        this.unsettled.add({ id: planId(plan), request: active, bytes, state: 'accepting' })
      }
    }
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

  end(reason: unknown): void {
    this.#end = { reason }
    for (const active of this.#active.values()) active.fail(reason)
  }

  stateOf(rollout: string): RolloutState {
    const unsettled = this.unsettled.get(rollout)
    if (!unsettled) return 'ended'
    return unsettled.state === 'running' ? 'running' : 'queued'
  }

  runningOf(request: KnownRequest): number {
    return this.#active.get(request.id)?.running ?? 0
  }

  unsettledOf(request: KnownRequest): UnsettledRollout[] {
    if (!this.#active.has(request.id)) return []
    return Array.from(rolloutIds(request), (id) => this.unsettled.get(id) ?? []).flat()
  }
}

/** The requests a server knows by id. Beyond the bound, ended ones are forgotten, the oldest first. */
export class RequestIndex {
  readonly #requests = new Map<string, KnownRequest>()
  readonly #maxRemembered: number
  readonly #isActive: (id: string) => boolean

  constructor(maxRemembered: number, isActive: (id: string) => boolean) {
    this.#maxRemembered = maxRemembered
    this.#isActive = isActive
  }

  get(id: string): KnownRequest | undefined {
    return this.#requests.get(id)
  }

  add(request: KnownRequest): void {
    this.#requests.set(request.id, request)
    if (this.#requests.size > this.#maxRemembered) this.#forgetOldest()
  }

  remove(id: string): void {
    this.#requests.delete(id)
  }

  newest(): KnownRequest[] {
    return [...this.#requests.values()].toSorted((one, other) => other.firstTask - one.firstTask)
  }

  #forgetOldest(): void {
    // Once around at most: all of them may be active.
    let left = this.#requests.size
    for (const [id, request] of this.#requests) {
      if (left === 0) return
      left -= 1
      this.#requests.delete(id)
      if (!this.#isActive(id)) return
      this.#requests.set(id, request)
    }
  }
}
