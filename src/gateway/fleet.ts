import { MillraceError } from '../errors/index.ts'
import { shownUrl, type PauseGate, type PauseMode } from '../inference/index.ts'
import { nearestName, Resource, settlesWithin } from '../kit/index.ts'
import { type BackendAnswer, type BackendView, FleetBackend, type ServedBackend } from './fleet-backend.ts'

/** The backends that an order is for, by id or url; all of them if not given. */
interface ForBackends {
  readonly backends?: readonly string[] | undefined
}

export interface PauseOptions extends ForBackends {
  readonly mode?: PauseMode | undefined
  /** How long the pause lasts if nobody ends it. */
  readonly ttlMs?: number | undefined
  /** The number of the pause: a later one is higher. One is given if it is not named. */
  readonly epoch?: number | undefined
}

export interface ResumeOptions extends ForBackends {
  /** Ends no later pause than this one. */
  readonly epoch?: number | undefined
}

export interface VersionOptions extends ForBackends {
  readonly version: string
}

export interface FleetAnswer {
  /** Whether all backends have done what they were told. */
  readonly ok: boolean
  readonly backends: readonly BackendAnswer[]
}

export interface PauseAnswer extends FleetAnswer {
  readonly epoch: number
}

interface FleetOptions {
  readonly served: () => readonly ServedBackend[]
  readonly gateOf: (url: string) => PauseGate
  readonly secrets?: readonly string[] | undefined
  readonly onAlarm: (message: string) => void
}

const defaultPauseMs = 10 * 60_000
/** Backends that resume wait so long for the others, so that the first one does not get all calls that waited. */
const togetherMs = 200
/** How long the end of a gateway waits for engines that it has paused to go on. */
const closeMs = 2000

/** All backends of a gateway, and the orders that are for several of them: each is sent to all at once, and answered for each. */
export class Fleet extends Resource {
  readonly #options: FleetOptions
  readonly #backends = new Map<string, FleetBackend>()
  #epoch = 0

  constructor(options: FleetOptions) {
    super()
    this.#options = options
  }

  list(): BackendView[] {
    const { secrets } = this.#options
    return Array.from(this.#known(), ([url, backend]) => backend.view(shownUrl(url, secrets)))
  }

  idOf(url: string): string | undefined {
    return this.#known().get(url)?.id
  }

  /** Throws if there is no backend of this id or url. */
  urlOf(name: string): string {
    const [backend] = this.#targets({ backends: [name] })
    return backend?.url ?? name
  }

  /** Of the last pause; 0 if there was none. */
  get epoch(): number {
    return this.#epoch
  }

  /** Refuses an epoch that is over, at any of the backends, before any of them is paused. */
  async pause(options: PauseOptions = {}): Promise<PauseAnswer> {
    const { mode = 'finish', ttlMs = defaultPauseMs, epoch = this.#epoch + 1 } = options
    const targets = this.#targets(options)
    const later = targets.find((backend) => epoch < backend.epoch || (epoch === backend.epoch && !backend.isPaused))
    if (later) throw overError('pause', epoch, later)
    this.#epoch = Math.max(this.#epoch, epoch)
    const backends = await Promise.all(targets.map((backend) => backend.pause({ epoch, mode, ttlMs })))
    return { epoch, ...summary(backends) }
  }

  async resume(options: ResumeOptions = {}): Promise<FleetAnswer> {
    const { epoch = Infinity } = options
    const targets = this.#targets(options)
    const later = targets.find((backend) => backend.isPaused && backend.epoch > epoch)
    if (later) throw overError('resume', epoch, later)
    const begun = targets.map((backend) => backend.beginResume())
    const all = Promise.all(begun)
    const answers = targets.map(async (backend, index) => {
      const resumed = await begun[index]
      if (!resumed) throw new MillraceError('internal', 'a resume was not begun')
      await settlesWithin(all, togetherMs)
      return backend.endResume(resumed)
    })
    return summary(await Promise.all(answers))
  }

  async setVersion({ version, ...options }: VersionOptions): Promise<FleetAnswer> {
    const targets = this.#targets(options)
    return summary(await Promise.all(targets.map((backend) => backend.setVersion(version, this.closedSignal))))
  }

  /** Engines that are paused go on: nobody else would tell them. */
  protected async onClose(): Promise<void> {
    const paused = Array.from(this.#backends.values()).filter(({ isPaused }) => isPaused)
    await settlesWithin(Promise.all(paused.map((backend) => backend.beginResume())), closeMs)
    for (const backend of this.#backends.values()) backend.close()
  }

  #targets({ backends }: ForBackends): FleetBackend[] {
    const known = this.#known()
    if (!backends) return [...known.values()]
    const named = backends.map((name) => {
      const backend = known.get(name) ?? Array.from(known.values()).find(({ id }) => id === name)
      if (backend) return backend
      throw unknownBackend(
        name,
        Array.from(known.values(), ({ id }) => id),
      )
    })
    return [...new Set(named)]
  }

  /** The backends by url, as models have them now. */
  #known(): ReadonlyMap<string, FleetBackend> {
    const { served, gateOf, onAlarm } = this.#options
    const byUrl = Map.groupBy(served(), ({ url }) => url)
    for (const [url, backend] of this.#backends) {
      if (byUrl.has(url)) continue
      backend.close()
      this.#backends.delete(url)
    }
    for (const [url, own] of byUrl) {
      const known = this.#backends.get(url)
      if (known) {
        known.served = own
        continue
      }
      const name = own[0]?.name ?? url
      const isTaken = Array.from(this.#backends.values()).some(({ id }) => id === name)
      const added = new FleetBackend({ id: isTaken ? url : name, url, gate: gateOf(url), onAlarm })
      added.served = own
      this.#backends.set(url, added)
    }
    return this.#backends
  }
}

function summary(backends: readonly BackendAnswer[]): FleetAnswer {
  return { ok: backends.every(({ ok }) => ok), backends }
}

function unknownBackend(name: string, ids: readonly string[]): MillraceError {
  const meant = nearestName(name, ids)
  const hint = meant === undefined ? 'GET /v1/backends lists them' : `did you mean ${meant}?`
  const message = `there is no backend "${name.slice(0, 200)}" here; ${hint}`
  return new MillraceError('usage', message, { data: { status: 404, param: 'backends' } })
}

function overError(
  what: 'pause' | 'resume',
  epoch: number,
  { id, epoch: last, isPaused }: FleetBackend,
): MillraceError {
  const state = isPaused ? `is in the pause of epoch ${last}` : `has ended the pause of epoch ${last}`
  const message = `a ${what} of epoch ${epoch} comes too late: backend ${id} ${state}; nothing was changed`
  return new MillraceError('usage', message, { data: { status: 409, param: 'epoch' } })
}
