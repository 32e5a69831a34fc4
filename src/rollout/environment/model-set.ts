import { MillraceError } from '../../errors/index.ts'
import {
  HttpBackend,
  Model,
  type HttpBackendOptions,
  type LimitChange,
  type ModelClient,
  type ModelConfig,
  type WorkerLimits,
} from '../../inference/index.ts'
import { Resource, unknownField, type Variables } from '../../kit/index.ts'
import { Simulator } from '../../simulator/index.ts'
import type { Backend } from '../../apis/index.ts'

/** The models of a run on this thread: opened together, shared by every rollout, closed with the run. */
export class ModelSet extends Resource {
  readonly #models = new Map<string, Model>()
  readonly #ownBackends: Backend[] = []

  constructor(options: {
    configs: readonly ModelConfig[]
    env: Variables
    onLimitChange: (change: LimitChange) => void
    /** Replaces the configured backends of a model: a test's script, an engine in this process. Not closed with the set. */
    backends?: Readonly<Record<string, readonly Backend[]>>
    /** Limits shared with other workers; without them every limit is this thread's own. They are not closed with the set. */
    limits?: WorkerLimits
    /** Whether replies are to have the version of their weights. */
    capturesTokens?: boolean
    /** Connections of clients that a server of this process has room for. */
    clients?: number
  }) {
    super()
    const { env, limits, onLimitChange, capturesTokens } = options
    const names = options.configs.map(({ name }) => name)
    const unknown = unknownField(options.backends ?? {}, names, 'backends.')
    // A misspelt name would leave the model on its configured backend, which may cost money.
    if (unknown !== undefined)
      throw new MillraceError('config_invalid', `each key of backends must be the name of a model: ${unknown}`)
    const shares: HttpBackendOptions = {
      watchesWeights: capturesTokens ? 'first' : false,
      workers: limits?.workers ?? 1,
      clients: options.clients,
      backends: options.configs.reduce((sum, config) => sum + config.backends.length, 0),
    }
    using opened = new DisposableStack()
    opened.defer(() => void this.close())
    for (const config of options.configs) {
      const given = options.backends?.[config.name]
      const backends = given ?? this.#open(config, env, shares)
      const shared = limits && { limits: limits.model(config.name) }
      this.#models.set(config.name, new Model(config, backends, { onLimitChange, ...shared }))
    }
    opened.move()
  }

  /** Opens the backends of a model. Each belongs to the set as soon as it is open: the next one may fail. */
  #open(config: ModelConfig, env: Variables, shares: HttpBackendOptions): readonly Backend[] {
    const own = <Kind extends Backend>(backend: Kind): Kind => {
      this.#ownBackends.push(backend)
      return backend
    }
    if (config.simulator) return [own(new Simulator(config.simulator))]
    return config.backends.map((backend) => own(new HttpBackend(config, backend, env, shares)))
  }

  get(name: string): ModelClient {
    const model = this.#models.get(name)
    if (model) return model
    const known = [...this.#models.keys()].join(', ')
    throw new MillraceError('env_invalid', `there is no model named ${name}; this run has ${known}. Add it to models.`)
  }

  all(): readonly Model[] {
    return [...this.#models.values()]
  }

  protected async onClose(): Promise<void> {
    await using parts = new AsyncDisposableStack()
    for (const part of [...this.#ownBackends, ...this.all()]) parts.use(part)
  }
}
