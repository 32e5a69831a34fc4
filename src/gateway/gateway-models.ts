import { MillraceError } from '../errors/index.ts'
import {
  modelPrice,
  tokenRequestOf,
  type Backend,
  type LimitChange,
  type ModelClient,
  type ModelConfig,
  type ModelStatus,
  type Price,
} from '../inference/index.ts'
import { nearestName, Resource } from '../kit/index.ts'
import { ModelSet } from '../rollout/index.ts'
import type { ApiName, JsonObject } from '../schema/index.ts'

/** What is known of a model beside its config, from asking its backends. */
export interface ModelFacts {
  /** Whether its backends return token ids and log-probabilities when asked. Default: those asked in Chat do. */
  readonly capturesTokens?: boolean
  readonly contextLength?: number
}

/** How backends are asked for tokens. What they take of it may turn out only while they are asked. */
interface TokenHabit {
  readonly fields: JsonObject
  inStreams: boolean
  /** They have answered to it. */
  isAccepted: boolean
}

export interface GatewayModel {
  readonly name: string
  /** What its backends call it. */
  readonly upstreamName: string
  /** The API its backends are asked in. */
  readonly api: ApiName
  readonly capturesTokens: boolean
  /** Whether all its backends are SGLang's, so that it can be asked in SGLang's own API. */
  readonly isSglang: boolean
  readonly tokenRequest: TokenHabit
  readonly contextLength?: number
  /** Undefined where none is known. */
  readonly price: Price | undefined
  readonly client: ModelClient
}

export interface GatewayModelsOptions {
  readonly models: readonly ModelConfig[]
  readonly env: Readonly<Record<string, string | undefined>>
  /** Other names for models; `*` for every name that is not known. */
  readonly aliases?: Readonly<Record<string, string>>
  readonly facts?: Readonly<Record<string, ModelFacts>>
  /** Stands in for the configured backends of a model: a test's script. */
  readonly backends?: Readonly<Record<string, readonly Backend[]>>
  readonly onLimitChange: (change: LimitChange) => void
}

const anyName = '*'

/** The models behind a gateway, by the names that clients use. */
export class GatewayModels extends Resource {
  readonly #set: ModelSet
  readonly #byName = new Map<string, GatewayModel>()
  readonly #own: readonly GatewayModel[]
  readonly #fallback: GatewayModel | undefined

  constructor({ models, env, aliases = {}, facts = {}, backends, onLimitChange }: GatewayModelsOptions) {
    super()
    checkNames(models, aliases)
    this.#set = new ModelSet({ configs: models, env, onLimitChange, ...(backends && { backends }) })
    this.#own = models.map((config) => modelOf(config, this.#set.get(config.name), facts[config.name]))
    for (const model of this.#own) this.#byName.set(model.name, model)
    for (const [alias, name] of Object.entries(aliases)) {
      const model = this.#own.find((own) => own.name === name)
      if (model && alias !== anyName) this.#byName.set(alias, model)
    }
    this.#fallback = this.#byName.get(aliases[anyName] ?? '')
  }

  /** Throws for a name that nobody has. */
  find(name: string): GatewayModel {
    const model = this.#byName.get(name) ?? this.#fallback
    if (model) return model
    const meant = nearestName(name, this.#byName.keys())
    const hint = meant === undefined ? '' : ` Did you mean "${meant}"?`
    const message = `there is no model "${name.slice(0, 80)}" here; GET /v1/models lists them.${hint}`
    throw new MillraceError('model_not_found', message, { data: { status: 404, param: 'model' } })
  }

  /** For a request in SGLang's own API, which has no word for a model: without a name there must be one that it can mean. */
  findSglang(name: string): GatewayModel {
    const able = this.#own.filter(({ isSglang }) => isSglang)
    const [only] = able
    if (name === '' && able.length === 1 && only) return only
    const named = name === '' ? this.#fallback : this.find(name)
    if (named?.isSglang) return named
    throw notSglang(named?.name, able)
  }

  /** By every name but `*`. */
  all(): ReadonlyMap<string, GatewayModel> {
    return this.#byName
  }

  endSession(session: string): void {
    for (const { client } of this.#own) client.endSession(session)
  }

  status(): ModelStatus[] {
    return this.#own.map(({ client }) => client.status())
  }

  protected onClose(): Promise<void> {
    return this.#set.close()
  }
}

function modelOf(config: ModelConfig, client: ModelClient, facts: ModelFacts = {}): GatewayModel {
  const { name, upstreamName = name } = config
  // The built-in simulator has no wire: in process it answers in Chat's words, whichever API the config names.
  const api = config.simulator ? 'chat' : config.api
  const { capturesTokens = api === 'chat', contextLength } = facts
  const engines = config.backends.map(({ engine }) => engine)
  const isSglang = engines.length > 0 && engines.every((engine) => engine === 'sglang')
  const model = {
    name,
    api,
    upstreamName,
    capturesTokens,
    isSglang,
    tokenRequest: { ...tokenRequestOf(engines), isAccepted: false },
    price: modelPrice(config),
    client,
  }
  return { ...model, ...(contextLength !== undefined && { contextLength }) }
}

function notSglang(name: string | undefined, able: readonly GatewayModel[]): MillraceError {
  const names = able.map((model) => model.name).join(', ')
  const offer = names === '' ? 'No model here can be asked in it; use another API.' : `Name one that is: ${names}.`
  const which = name === undefined ? 'the request names no model, in a field "model"' : `model ${name} is not that`
  const message = `/generate is an API of SGLang alone, and ${which}. ${offer}`
  return new MillraceError('model_rejected', message, { data: { status: 400, param: 'model' } })
}

/** Before anything is opened. */
function checkNames(models: readonly ModelConfig[], aliases: Readonly<Record<string, string>>): void {
  const names = new Set(models.map(({ name }) => name))
  if (names.size === 0) throw new MillraceError('config_invalid', 'a gateway needs at least one model. Name a backend.')
  if (names.size < models.length) {
    throw new MillraceError(
      'config_invalid',
      'two models have the same name. Rename one, and say what its backends call it.',
    )
  }
  for (const [alias, name] of Object.entries(aliases)) {
    if (names.has(name)) continue
    const message = `alias ${alias} stands for ${name}, which is no model of the gateway. It has ${[...names].join(', ')}.`
    throw new MillraceError('config_invalid', message)
  }
}
