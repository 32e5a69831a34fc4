import { isDeepStrictEqual } from 'node:util'
import {
  HttpBackend,
  Model,
  type Backend,
  type BackendConfig,
  type LimitChange,
  type ModelConfig,
  type ModelStatus,
} from '../inference/index.ts'
import { closeAll, Resource, sleep, type Variables } from '../kit/index.ts'
import { Simulator } from '../simulator/index.ts'

export interface ServedModelOptions {
  readonly env: Variables
  readonly onLimitChange: (change: LimitChange) => void
  /** Stand in for those of its config: a test's script. They stay open. */
  readonly given: readonly Backend[] | undefined
  /** How many backends, of all models, divide the descriptors. */
  readonly sharers: number
}

/** One that nobody asks for any more is closed if nothing was under way for so long: a request may have just found it. */
const idleMs = 30_000

interface OwnBackend {
  /** What it was opened with. */
  readonly model: ModelConfig
  readonly config: BackendConfig
  readonly backend: HttpBackend
}

/** A model of a gateway, with backends that may come and go while it is asked. */
export class ServedModel extends Resource {
  readonly client: Model
  readonly #options: ServedModelOptions
  readonly #simulator: Simulator | undefined
  #config: ModelConfig
  #backends: readonly OwnBackend[]
  /** They end what they were at. */
  readonly #leaving = new Set<OwnBackend>()

  constructor(config: ModelConfig, options: ServedModelOptions) {
    super()
    const { given, onLimitChange, sharers } = options
    this.#options = options
    this.#config = config
    this.#simulator = config.simulator && !given ? new Simulator(config.simulator) : undefined
    this.#backends = given || this.#simulator ? [] : config.backends.map((each) => this.#opened(config, each, sharers))
    const own = this.#simulator ? [this.#simulator] : this.#backends.map(({ backend }) => backend)
    this.client = new Model(config, given ?? own, { onLimitChange })
  }

  /** True if something about it has changed. Requests under way end where they began, and its limits go on. */
  change(config: ModelConfig, sharers: number): boolean {
    if (isDeepStrictEqual(config, this.#config)) return false
    if (this.#simulator || this.#options.given) {
      this.#config = config
      return true
    }
    const before = this.#backends
    using opened = new DisposableStack()
    const open = (each: BackendConfig): OwnBackend => {
      const own = this.#opened(config, each, sharers)
      opened.defer(() => void own.backend.close())
      return own
    }
    this.#backends = config.backends.map(
      (each) =>
        before.find((own) => isDeepStrictEqual(own.config, each) && opensAlike(own.model, config)) ?? open(each),
    )
    // Only now do they stay: where one cannot be opened, all is as it was until the same is asked for again.
    opened.move()
    this.#config = config
    const gone = before.filter((own) => !this.#backends.includes(own))
    for (const own of gone) this.#leaving.add(own)
    const ended = this.client.changeBackends(this.#backends.map(({ backend }) => backend))
    // One that cannot be closed is closed again, and then reported, with the model.
    void ended.then(() => this.#closeLeft(gone)).catch(() => {})
    return true
  }

  status(): ModelStatus {
    return this.client.status()
  }

  /** Nobody is to ask for it any more. Resolves when it is closed. */
  async retire(): Promise<void> {
    while (!this.isClosed) {
      const { calls } = this.status()
      try {
        await sleep(idleMs, this.closedSignal)
      } catch {
        break
      }
      if (this.client.isIdle && this.status().calls === calls) break
    }
    await this.close()
  }

  protected onClose(): Promise<void> {
    const backends = [...this.#backends, ...this.#leaving].map(({ backend }) => backend)
    return closeAll([...backends, ...(this.#simulator ? [this.#simulator] : []), this.client])
  }

  #opened(model: ModelConfig, config: BackendConfig, sharers: number): OwnBackend {
    const backend = new HttpBackend(model, config, this.#options.env, { backends: sharers })
    return { model, config, backend }
  }

  async #closeLeft(gone: readonly OwnBackend[]): Promise<void> {
    for (const own of gone) {
      await own.backend.close()
      this.#leaving.delete(own)
    }
  }
}

/** Whether a backend would be opened the same for both. */
function opensAlike(one: ModelConfig, other: ModelConfig): boolean {
  return isDeepStrictEqual({ ...one, backends: [] }, { ...other, backends: [] })
}
