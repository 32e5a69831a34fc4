import { MillraceError } from '../errors/index.ts'
import {
  tokenRequestOf,
  type Backend,
  type LimitChange,
  type ModelClient,
  type ModelConfig,
  type ModelStatus,
} from '../inference/index.ts'
import { closeAll, nearestName, Resource, unknownField, type Variables } from '../kit/index.ts'
import type { ApiName, JsonObject } from '../schema/index.ts'
import { tooMuch } from './_refusals.ts'
import { ServedModel } from './_served-model.ts'

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
  readonly client: ModelClient
}

/** What there is to ask for, as far as the backends have told. */
export interface ModelOffer {
  readonly models: readonly ModelConfig[]
  readonly facts?: Readonly<Record<string, ModelFacts>>
  /** Backends that have yet to say what they serve: a name that nobody knows may be theirs. */
  readonly awaited?: number
}

export interface GatewayModelsOptions extends ModelOffer {
  readonly env: Variables
  /** Other names for models; `*` for every name that is not known. */
  readonly aliases?: Readonly<Record<string, string>>
  /** Stands in for the configured backends of a model: a test's script. */
  readonly backends?: Readonly<Record<string, readonly Backend[]>>
  readonly onLimitChange: (change: LimitChange) => void
}

const anyName = '*'
/** Those who come before a backend has answered try again about as often as it is asked. */
const awaitedRetryMs = 5000

interface OwnModel {
  readonly served: ServedModel
  readonly model: GatewayModel
}

/** The models behind a gateway, by the names that clients use. */
export class GatewayModels extends Resource {
  readonly #options: Omit<GatewayModelsOptions, keyof ModelOffer>
  #own = new Map<string, OwnModel>()
  /** No backend lists them any more. Requests that they had are still theirs. */
  readonly #retired = new Set<ServedModel>()
  readonly #byName = new Map<string, GatewayModel>()
  #fallback: GatewayModel | undefined
  #awaited = 0

  constructor({ models, facts, awaited = 0, ...options }: GatewayModelsOptions) {
    super()
    checkNames({ models, awaited }, options.aliases ?? {})
    this.#options = options
    refuseUnknownBackends(models, options.backends ?? {})
    this.offer({ models, awaited, ...(facts && { facts }) })
  }

  /** What there is from now on, when backends have said something new. A model that cannot be opened so stays as it was; throws then. */
  offer({ models, facts = {}, awaited = 0 }: ModelOffer): void {
    if (this.isClosed) return
    this.#awaited = awaited
    const sharers = awaited + models.reduce((sum, config) => sum + config.backends.length, 0)
    const before = this.#own
    const own = new Map<string, OwnModel>()
    const failures: unknown[] = []
    for (const config of models) {
      const { name } = config
      try {
        own.set(name, this.#offered(config, { before, facts: facts[name], sharers }))
      } catch (error) {
        failures.push(error)
        const known = before.get(name)
        if (known) own.set(name, known)
      }
    }
    this.#own = own
    for (const [name, { served }] of before) if (!own.has(name)) this.#retire(served)
    this.#nameAll()
    if (failures.length > 0) throw failures[0]
  }

  /** Throws for a name that nobody has. */
  find(name: string): GatewayModel {
    const model = this.#byName.get(name) ?? this.#fallback
    if (model) return model
    throw this.unknown(name)
  }

  /** Why nothing can be asked under this name. */
  unknown(name: string): MillraceError {
    const shown = `"${name.slice(0, 80)}"`
    const meant = nearestName(name, this.#byName.keys())
    const hint = meant === undefined ? '' : ` Did you mean "${meant}"?`
    if (this.#awaited > 0) {
      // Whether the name is wrong nobody can say, so both are: a backend may be away for long.
      const missing = this.#awaited === 1 ? 'one backend is' : `${this.#awaited} backends are`
      const message = `no model ${shown} is known here so far; GET /v1/models lists those that are.${hint} If the name is right: ${missing} still waited for and may serve it, so try again later`
      return tooMuch(message, awaitedRetryMs)
    }
    const { aliases = {} } = this.#options
    // One that was to be a late backend's, and is not.
    const target = aliases[Object.hasOwn(aliases, name) ? name : anyName]
    const message =
      target === undefined
        ? `there is no model ${shown} here; GET /v1/models lists them.${hint}`
        : `${shown} stands for "${target}" here, which no backend serves; whoever runs the gateway should correct that alias`
    return new MillraceError('model_not_found', message, { data: { status: 404, param: 'model' } })
  }

  /** For a request in SGLang's own API, which has no word for a model: without a name there must be one that it can mean. */
  findSglang(name: string): GatewayModel {
    const able = Array.from(this.#own.values(), ({ model }) => model).filter(({ isSglang }) => isSglang)
    const [only] = able
    if (name === '' && able.length === 1 && only) return only
    if (name === '' && !this.#fallback && this.#awaited > 0) throw this.unknown(name)
    const named = name === '' ? this.#fallback : this.find(name)
    if (named?.isSglang) return named
    throw notSglang(named?.name, able)
  }

  /** By every name but `*`. */
  all(): ReadonlyMap<string, GatewayModel> {
    return this.#byName
  }

  endSession(session: string): void {
    for (const { client } of this.#all()) client.endSession(session)
  }

  status(): ModelStatus[] {
    const own = Array.from(this.#own.values(), ({ served }) => served.status())
    // What they may still ask at once is not theirs any more.
    return [...own, ...Array.from(this.#retired, (served) => ({ ...served.status(), limit: 0 }))]
  }

  protected onClose(): Promise<void> {
    return closeAll(this.#all())
  }

  #all(): ServedModel[] {
    return [...Array.from(this.#own.values(), ({ served }) => served), ...this.#retired]
  }

  #offered(
    config: ModelConfig,
    {
      before,
      facts,
      sharers,
    }: { before: ReadonlyMap<string, OwnModel>; facts: ModelFacts | undefined; sharers: number },
  ): OwnModel {
    const known = before.get(config.name)
    const { env, onLimitChange, backends } = this.#options
    const given = backends?.[config.name]
    const served = known?.served ?? new ServedModel(config, { env, onLimitChange, given, sharers })
    const hasChanged = known?.served.change(config, sharers) ?? true
    const model = modelOf(config, served.client, facts)
    // What backends take is found out anew where others are among them.
    return { served, model: known && !hasChanged ? { ...model, tokenRequest: known.model.tokenRequest } : model }
  }

  #retire(served: ServedModel): void {
    this.#retired.add(served)
    // One that cannot be closed stays, and is reported when all are.
    void served.retire().then(
      () => this.#retired.delete(served),
      () => {},
    )
  }

  #nameAll(): void {
    this.#byName.clear()
    this.#fallback = undefined
    for (const [name, { model }] of this.#own) this.#byName.set(name, model)
    for (const [alias, name] of Object.entries(this.#options.aliases ?? {})) {
      const model = this.#own.get(name)?.model
      if (model && alias === anyName) this.#fallback = model
      else if (model) this.#byName.set(alias, model)
    }
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

/** Whoever misspells a name would be served by somebody else, and perhaps pay for it. */
function refuseUnknownBackends(models: readonly ModelConfig[], backends: object): void {
  const names = models.map(({ name }) => name)
  const unknown = unknownField(backends, names, 'backends.')
  if (unknown !== undefined) throw new MillraceError('config_invalid', `backends go by the name of a model: ${unknown}`)
}

/** Before anything is opened. */
function checkNames({ models, awaited = 0 }: ModelOffer, aliases: Readonly<Record<string, string>>): void {
  const names = new Set(models.map(({ name }) => name))
  if (names.size === 0 && awaited === 0)
    throw new MillraceError('config_invalid', 'a gateway needs at least one model. Name a backend.')
  if (names.size < models.length) {
    throw new MillraceError(
      'config_invalid',
      'two models have the same name. Rename one, and say what its backends call it.',
    )
  }
  for (const [alias, name] of Object.entries(aliases)) {
    // It may be one of those that are not known yet.
    if (names.has(name) || awaited > 0) continue
    const message = `alias ${alias} stands for ${name}, which is no model of the gateway. It has ${[...names].join(', ')}.`
    throw new MillraceError('config_invalid', message)
  }
}
