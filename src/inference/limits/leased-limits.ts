import { Semaphore } from '../../kit/index.ts'
import { GateLink } from './_gate-link.ts'
import type { GateNews, GrantMessage, LeaseMessage } from './lease-messages.ts'
import { fillCells, type LimitLessons, type ModelLimits } from './model-limits.ts'
import { NamedLimits } from './_named-limits.ts'
import { burstMs } from './rate-limit.ts'
import { bytesOfCells, mapCells, type CellMap, type LimitCells } from './shared-limits-cells.ts'
import { TimeCell, machineNow } from './_time-cell.ts'
import type { LeasedHandle, WorkerLimits } from './worker-limits.ts'

/** How often unneeded permits are given back, and figures that nobody waits for are reported. */
const tickMs = 1000

/**
 * The limits of a process, which shares no memory with their owner. Its models work with cells of their own, in which the
 * limit is the number of permits the process has leased. It asks for as many permits as calls wait for, keeps them while they
 * are in use, and gives back those that were not needed for a second, or every one as it comes free while others wait.
 */
export class LeasedLimits extends NamedLimits implements WorkerLimits {
  readonly workers = 1
  readonly #limits: readonly LeasedLimit[]
  readonly #tick: NodeJS.Timeout

  constructor({ shapes, parties, gates }: LeasedHandle, send: (message: LeaseMessage) => void) {
    super()
    const map = mapCells(shapes, 1, new ArrayBuffer(bytesOfCells(shapes, 1)))
    fillCells(map, shapes)
    map.parties[0] = parties
    this.#limits = shapes.map((shape, index) => {
      const limit = new LeasedLimit(index, map, send)
      limit.learn(gates[index] ?? [])
      this.add(shape, limit)
      return limit
    })
    this.#tick = setInterval(() => {
      for (const limit of this.#limits) limit.tick()
    }, tickMs)
    this.#tick.unref()
  }

  receive(message: GrantMessage): void {
    if (!this.isClosed) this.#limits[message.limit]?.receive(message)
  }

  /** Leased permits go back when the owner sees the process end. */
  protected onClose(): void {
    clearInterval(this.#tick)
    for (const limit of this.#limits) limit.close()
  }
}

class LeasedLimit implements ModelLimits, LimitLessons {
  readonly cells: LimitCells
  readonly parties: Int32Array
  readonly place = 0
  readonly permits: Semaphore
  readonly #index: number
  readonly #send: (message: LeaseMessage) => void
  readonly #gates: GateLink
  readonly #listeners = new Set<() => void>()
  #leased = 0
  #isRecalled = false
  /** Leased permits that were not in use at the last tick. */
  #idle = 0
  #wasQuiet = true
  /** The counts of calls and tries that the owner has been told. */
  #calls = 0
  #tries = 0
  /** Replies and refusals that the owner has not been told of. */
  #answered = 0
  #refusals: number[] = []
  #nextReport: NodeJS.Immediate | undefined

  constructor(index: number, map: CellMap, send: (message: LeaseMessage) => void) {
    const cells = map.limits[index] as LimitCells
    this.#index = index
    this.#send = send
    this.cells = cells
    this.parties = map.parties
    this.permits = new Semaphore({
      cells: cells.permits,
      place: 0,
      wake: () => undefined,
      onWait: () => this.#reportSoon(),
      onRelease: () => {
        if (this.#isRecalled) this.#reportSoon()
      },
    })
    this.permits.resize(0)
    this.#gates = new GateLink(cells.backends)
    // The buckets start empty: this process may replace another one, which has used its share of the burst.
    for (const cell of [cells.requestsFullAt, cells.tokensFullAt]) new TimeCell(cell).ms = machineNow() + burstMs
  }

  get lessons(): LimitLessons {
    return this
  }

  announce(): void {
    this.#reportSoon()
  }

  onAnnounced(listener: () => void): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  onSuccess(): void {
    this.#answered += 1
  }

  onRateLimited(retryAfterMs: number): void {
    this.#refusals.push(retryAfterMs)
    this.#reportSoon()
  }

  receive({ granted, isRecalled, parties, gates }: GrantMessage): void {
    this.parties[0] = parties
    this.#leased += granted
    this.#isRecalled = isRecalled
    // Granted permits go to calls that wait, even while permits that come free are recalled.
    this.permits.resize(isRecalled ? this.permits.held + granted : this.#leased)
    if (isRecalled) {
      this.permits.resize(0)
      this.#reportSoon()
    }
    this.learn(gates)
  }

  learn(gates: readonly GateNews[]): void {
    if (this.#gates.learn(gates)) for (const listener of this.#listeners) listener()
  }

  tick(): void {
    const idle = this.#leased - this.permits.held
    const returned = Math.min(this.#idle, idle)
    this.#idle = idle - returned
    const isQuiet = this.#isQuiet()
    if (!isQuiet || !this.#wasQuiet) this.#report(returned)
    this.#wasQuiet = isQuiet
  }

  close(): void {
    clearImmediate(this.#nextReport)
    this.#listeners.clear()
  }

  #isQuiet(): boolean {
    const { calls, rateWaiting, backends } = this.cells
    const isWaited = this.permits.waiting > 0 || rateWaiting[0] !== 0 || backends.some(({ parked }) => parked[0] !== 0)
    return this.#leased === 0 && calls[0] === this.#calls && !isWaited
  }

  /** Schedules a report, so that all changes in one turn of the loop go in one message. */
  #reportSoon(): void {
    this.#nextReport ??= setImmediate(() => {
      this.#report(this.#isRecalled ? this.#leased - this.permits.held : 0)
    })
  }

  #report(returned: number): void {
    clearImmediate(this.#nextReport)
    this.#nextReport = undefined
    this.#leased -= returned
    if (!this.#isRecalled) this.permits.resize(this.#leased)
    const calls = this.cells.calls[0] as number
    const tries = this.cells.tries[0] as number
    this.#send({
      limit: this.#index,
      wanted: this.permits.waiting,
      rateWaiting: this.cells.rateWaiting[0] as number,
      inFlight: this.cells.backends.map(({ inFlight }) => inFlight[0] as number),
      parked: this.cells.backends.map(({ parked }) => parked[0] as number),
      returned,
      calls: calls - this.#calls,
      tries: tries - this.#tries,
      answered: this.#answered,
      refusals: this.#refusals,
      gates: this.#gates.news(),
    })
    this.#calls = calls
    this.#tries = tries
    this.#answered = 0
    this.#refusals = []
  }
}
