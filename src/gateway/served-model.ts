import { isDeepStrictEqual } from 'node:util'
import {
  HttpBackend,
  type HttpBackendOptions,
  Model,
  type BackendConfig,
  type LimitChange,
  type ModelConfig,
  type ModelStatus,
  type PauseGate,
} from '../inference/index.ts'
import type { Backend } from '../apis/index.ts'
import { Resource, sleep, type Variables } from '../kit/index.ts'
import { Simulator } from '../simulator/index.ts'
import { EngineWatch } from './engine-watch.ts'
import type { ServedBackend } from './fleet-backend.ts'

export interface ServedModelOptions {
  readonly env: Variables
  readonly secrets?: readonly string[] | undefined
  readonly onLimitChange: (change: LimitChange) => void
  /** Backends that replace the configured ones, such as a test's script. They are not closed with the model. */
  readonly given: readonly Backend[] | undefined
  readonly sharers: number
  readonly waits?: ModelWaits | undefined
  /** The gate before the backends of a url, which all models there share. */
  readonly gateOf: (url: string) => PauseGate
  readonly lookupFor?: ((url: string) => HttpBackendOptions['lookup']) | undefined
}

/** What holds for models whose config does not say it. */
export type ModelWaits = Pick<ModelConfig, 'maxWaitMs' | 'maxRateLimitWaitMs' | 'maxPauseWaitMs' | 'whenPaused'>

/** A retired model is closed once no request was under way for this long: a request may have just found it. */
const idleMs = 30_000

interface OwnBackend {
  readonly model: ModelConfig
  readonly config: BackendConfig
  readonly backend: HttpBackend
}

export class ServedModel extends Resource {
  readonly client: Model
  readonly #options: ServedModelOptions
  readonly #simulator: Simulator | undefined
  #config: ModelConfig
  #backends: readonly OwnBackend[]
  readonly #leaving = new Set<OwnBackend>()
  readonly #engines: EngineWatch
  #left: Promise<unknown> = Promise.resolve()

  constructor(config: ModelConfig, options: ServedModelOptions) {
    super()
    const { given, onLimitChange, sharers, waits } = options
    this.#options = options
    this.#config = config
    this.#simulator = config.simulator && !given ? new Simulator(config.simulator) : undefined
    using opened = new DisposableStack()
    this.#backends =
      given || this.#simulator ? [] : config.backends.map((each) => this.#opened(config, each, { sharers, opened }))
    const own = this.#simulator ? [this.#simulator] : this.#backends.map(({ backend }) => backend)
    const gateOf = (backend: Backend): PauseGate => options.gateOf(this.#urlOf(backend))
    this.client = new Model({ ...waits, ...config }, given ?? own, { onLimitChange, gateOf })
    this.#engines = new EngineWatch({ model: this.client })
    this.#engines.watch(this.#backends)
    opened.move()
  }

  /** Changes the config. True if anything changed. Requests under way finish at their backend, and the model's limits stay. */
  change(config: ModelConfig, sharers: number): boolean {
    if (isDeepStrictEqual(config, this.#config)) return false
    if (this.#simulator || this.#options.given) {
      this.#config = config
      return true
    }
    const before = this.#backends
    using opened = new DisposableStack()
    this.#backends = config.backends.map(
      (each) =>
        before.find((own) => isDeepStrictEqual(own.config, each) && opensAlike(own.model, config)) ??
        this.#opened(config, each, { sharers, opened }),
    )
    // Only now are the new backends kept: if one cannot be opened, nothing changes until the same config is offered again.
    opened.move()
    this.#config = config
    this.#engines.watch(this.#backends)
    const gone = before.filter((own) => !this.#backends.includes(own))
    for (const own of gone) this.#leaving.add(own)
    const ended = this.client.changeBackends(this.#backends.map(({ backend }) => backend))
    // If a backend cannot be closed, that is tried again, and reported, when the model is closed.
    const closed = ended.then(() => this.#closeLeft(gone)).catch(() => {})
    this.#left = Promise.all([this.#left, closed])
    return true
  }

  isActive(url: string, withinMs: number): boolean {
    return this.#backends.some(({ config, backend }) => config.url === url && backend.isActive(withinMs))
  }

  status(): ModelStatus {
    return this.client.status()
  }

  /** Its backends as part of the fleet. */
  served(): ServedBackend[] {
    return this.client.backends.map((backend) => ({
      name: backend instanceof HttpBackend ? backend.name : this.#urlOf(backend),
      url: this.#urlOf(backend),
      model: this.#config.name,
      client: this.client,
      backend,
      http: backend instanceof HttpBackend ? backend : undefined,
    }))
  }

  /** Every model has a simulator of its own. */
  #urlOf(backend: Backend): string {
    if (backend === this.#simulator) return `sim:${this.#config.name}`
    return this.#backends.find((own) => own.backend === backend)?.config.url ?? backend.name
  }

  /** Resolves when the backends that it had before are closed. */
  async closedLeft(): Promise<void> {
    await this.#left
  }

  /** Called when no new requests come for the model. Resolves when it is closed. */
  async retire(afterMs = idleMs): Promise<void> {
    while (!this.isClosed) {
      const { calls } = this.status()
      try {
        await sleep(afterMs, this.closedSignal)
      } catch {
        break
      }
      if (this.client.isIdle && this.status().calls === calls) break
    }
    await this.close()
  }

  protected async onClose(): Promise<void> {
    await using parts = new AsyncDisposableStack()
    for (const { backend } of [...this.#backends, ...this.#leaving]) parts.use(backend)
    parts.use(this.#simulator)
    parts.use(this.client)
    parts.use(this.#engines)
  }

  #opened(
    model: ModelConfig,
    config: BackendConfig,
    { sharers, opened }: { readonly sharers: number; readonly opened: DisposableStack },
  ): OwnBackend {
    const { env, secrets, lookupFor } = this.#options
    const lookup = lookupFor?.(config.url)
    const backend = new HttpBackend(model, config, env, { backends: sharers, secrets, lookup, watchesWeights: true })
    opened.defer(() => void backend.close())
    return { model, config, backend }
  }

  async #closeLeft(gone: readonly OwnBackend[]): Promise<void> {
    for (const own of gone) {
      await own.backend.close()
      this.#leaving.delete(own)
    }
  }
}

function opensAlike(one: ModelConfig, other: ModelConfig): boolean {
  return isDeepStrictEqual({ ...one, backends: [] }, { ...other, backends: [] })
}
