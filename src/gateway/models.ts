import { MillraceError } from '../errors/index.ts'
import { tokenRequestOf, type Backend } from '../apis/index.ts'
import {
  type LimitChange,
  type ModelClient,
  type ModelConfig,
  type ModelStatus,
  PauseGate,
} from '../inference/index.ts'
import { andList, nearestName, Resource, settlesWithin, unknownField, type Variables } from '../kit/index.ts'
import type { ApiName, JsonObject } from '../schema/index.ts'
import { tooManyError } from './errors.ts'
import type { ServedBackend } from './fleet-backend.ts'
import { type ModelWaits, ServedModel, type ServedModelOptions } from './served-model.ts'

export interface ModelFacts {
  /** Whether its backends return token ids and log-probabilities when asked. Default: true for backends asked in Chat. */
  readonly capturesTokens?: boolean
  readonly contextLength?: number
}

/** How backends are asked for tokens. Whether they accept it may turn out only when requests are sent. */
interface LearnedTokenRequest {
  readonly fields: JsonObject
  inStreams: boolean
  isAccepted: boolean
}

export interface GatewayModel {
  readonly name: string
  readonly upstreamName: string
  readonly api: ApiName
  readonly capturesTokens: boolean
  /** Whether it is asked in Chat over HTTP, so that its backends can be asked for several choices at once. */
  readonly takesChoices: boolean
  readonly isSglang: boolean
  /** Whether its prompts are written as token ids here: then no client's body is passed on to it. */
  readonly isExact: boolean
  readonly tokenRequest: LearnedTokenRequest
  readonly contextLength?: number
  readonly client: ModelClient
}

/** What to do with a tool that only the client's provider runs, if the model is asked in another API. */
export type HostedTools = 'leave-out' | 'refuse'

/** The models that are offered, as far as backends have told what they serve. */
export interface ModelOffer {
  readonly models: readonly ModelConfig[]
  readonly facts?: Readonly<Record<string, ModelFacts>>
  /** The number of backends that have not answered yet: an unknown name may be a model of theirs. */
  readonly awaited?: number
  /** How long models that are no longer offered stay open without a request. */
  readonly retireAfterMs?: number
}

export interface GatewayModelsOptions extends ModelOffer {
  readonly env: Variables
  /** What must not be shown if a backend says it, beside the keys and headers that it is sent. */
  readonly secrets?: readonly string[]
  /** Other names for models; `*` stands for every unknown name. */
  readonly aliases?: Readonly<Record<string, string>>
  /** Backends that replace the configured ones of a model, such as a test's script. */
  readonly backends?: Readonly<Record<string, readonly Backend[]>>
  readonly waits?: ModelWaits
  /** How the addresses of a backend are found, where some are to be refused. */
  readonly lookupFor?: ServedModelOptions['lookupFor']
  readonly onLimitChange: (change: LimitChange) => void
}

const anyName = '*'
/** Clients that come before a backend has answered should retry about as often as the backend is asked. */
const awaitedRetryMs = 5000
/** How long the start waits for backends of models with exact tokens. */
const exactOpenMs = 10_000
const maxListed = 10
const maxShownName = 80

interface OwnModel {
  readonly served: ServedModel
  readonly model: GatewayModel
}

export class GatewayModels extends Resource {
  readonly #options: Omit<GatewayModelsOptions, keyof ModelOffer>
  #own = new Map<string, OwnModel>()
  readonly #retired = new Map<ServedModel, Promise<void>>()
  readonly #byName = new Map<string, GatewayModel>()
  #fallback: GatewayModel | undefined
  #awaited = 0
  /** By the url of the backend. They outlive it: one that comes back is still paused. */
  readonly #gates = new Map<string, PauseGate>()

  private constructor(options: Omit<GatewayModelsOptions, keyof ModelOffer>) {
    super()
    this.#options = options
  }

  /** If one of the models cannot be opened, the others are closed before this rejects. */
  static async open({ models, facts, awaited = 0, ...options }: GatewayModelsOptions): Promise<GatewayModels> {
    checkNames({ models, awaited }, options.aliases ?? {})
    refuseUnknownBackends(models, options.backends ?? {})
    await using owned = new AsyncDisposableStack()
    const opened = owned.use(new GatewayModels(options))
    opened.offer({ models, awaited, ...(facts && { facts }) })
    await opened.#openExact()
    owned.move()
    return opened
  }

  /**
   * Reads the tokenizers of exact models, which can hold the loop for seconds, and rejects if tokens cannot be exact. A backend that
   * is away is asked again by the first request.
   */
  async #openExact(): Promise<void> {
    const exact = Array.from(this.#own.values()).filter(({ model }) => model.isExact)
    const openings = exact.map(async ({ served }) => {
      try {
        await served.client.tokenStream()
      } catch (error) {
        if (MillraceError.from(error, 'internal').code === 'config_invalid') throw error
      }
    })
    const all = Promise.all(openings)
    if (await settlesWithin(all, exactOpenMs)) await all
    else all.catch(() => undefined)
  }

  /** Replaces the offer. A model that cannot be opened stays as it was; then this throws. */
  offer({ models, facts = {}, awaited = 0, retireAfterMs }: ModelOffer): void {
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
    for (const [name, { served }] of before) if (!own.has(name)) this.#retire(served, retireAfterMs)
    this.#nameAll()
    if (failures.length > 0) throw failures[0]
  }

  find(name: string): GatewayModel {
    const model = this.known(name)
    if (model) return model
    throw this.#unknown(name)
  }

  known(name: string): GatewayModel | undefined {
    return this.#byName.get(name) ?? this.#fallback
  }

  /** The name if it stands for a model, else that of the model for unknown names, or the first one. Undefined if there is none yet. */
  nameFor(name: unknown): string | undefined {
    if (typeof name === 'string' && name !== '' && this.known(name)) return name
    const [first] = this.#own.values()
    return (this.#fallback ?? first?.model)?.name
  }

  /** The model for a request in SGLang's own API, in which the name is optional if only one model can be meant. */
  findSglang(name: string): GatewayModel {
    const able = Array.from(this.#own.values(), ({ model }) => model).filter(({ isSglang }) => isSglang)
    const [only] = able
    if (name === '' && able.length === 1 && only) return only
    if (name === '' && !this.#fallback && this.#awaited > 0) throw this.#unknown(name)
    const named = name === '' ? this.#fallback : this.find(name)
    if (named?.isSglang) return named
    throw notSglang(named?.name, able)
  }

  all(): ReadonlyMap<string, GatewayModel> {
    return this.#byName
  }

  isActive(url: string, withinMs: number): boolean {
    return this.#all().some((served) => served.isActive(url, withinMs))
  }

  endSession(session: string): void {
    for (const { client } of this.#all()) client.endSession(session)
  }

  /** The backends of all models that are offered. */
  backends(): ServedBackend[] {
    return Array.from(this.#own.values()).flatMap(({ served }) => served.served())
  }

  /** Resolves when what is no longer offered has been closed. */
  async closedLeft(): Promise<void> {
    await Promise.all([...this.#retired.values(), ...this.#all().map((served) => served.closedLeft())])
    const urls = new Set(this.backends().map(({ url }) => url))
    for (const [url, gate] of this.#gates) if (!urls.has(url) && gate.running === 0) this.#gates.delete(url)
  }

  gateOf(url: string): PauseGate {
    const gate = this.#gates.get(url) ?? new PauseGate()
    this.#gates.set(url, gate)
    return gate
  }

  status(): ModelStatus[] {
    const own = Array.from(this.#own.values(), ({ served }) => served.status())
    // Retired models take no new requests, so their limit is 0.
    return [...own, ...Array.from(this.#retired.keys(), (served) => ({ ...served.status(), limit: 0 }))]
  }

  protected async onClose(): Promise<void> {
    await using parts = new AsyncDisposableStack()
    for (const served of this.#all()) parts.use(served)
  }

  #unknown(name: string): MillraceError {
    const shown = `"${name.slice(0, maxShownName)}"`
    const meant = nearestName(name, this.#byName.keys())
    const hint = meant === undefined ? '' : ` Did you mean "${meant}"?`
    if (this.#awaited > 0) {
      // Nobody can say yet whether the name is wrong, so the message covers both: a backend may be away for long.
      const missing = this.#awaited === 1 ? 'one backend has' : `${this.#awaited} backends have`
      const known = this.#byName.size === 0 ? '' : ` The models known so far: ${this.#listed()}.`
      const message = `no model ${shown} is known yet.${hint}${known} If the name is right, try again later: ${missing} not answered yet and may serve it`
      return tooManyError(message, awaitedRetryMs)
    }
    const { aliases = {} } = this.#options
    // An alias may stand for a model that a late backend was expected to serve, and does not.
    const target = aliases[Object.hasOwn(aliases, name) ? name : anyName]
    const message =
      target === undefined
        ? `there is no model ${shown} here.${hint} The models here: ${this.#listed()}`
        : `${shown} is an alias of "${target}", which no backend serves; ask the operator of the gateway to correct the alias`
    return new MillraceError('model_not_found', message, { data: { status: 404, param: 'model' } })
  }

  #listed(): string {
    const names = Array.from(this.#byName.keys().take(maxListed), (name) => name.slice(0, maxShownName))
    const more = this.#byName.size - names.length
    return more > 0 ? `${names.join(', ')} and ${more} more (GET /v1/models lists all)` : andList(names)
  }

  #all(): ServedModel[] {
    return [...Array.from(this.#own.values(), ({ served }) => served), ...this.#retired.keys()]
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
    const { env, secrets, onLimitChange, backends, waits, lookupFor } = this.#options
    const given = backends?.[config.name]
    const gateOf = (url: string): PauseGate => this.gateOf(url)
    const options = { env, secrets, onLimitChange, given, sharers, waits, gateOf, lookupFor }
    const served = known?.served ?? new ServedModel(config, options)
    const hasChanged = known?.served.change(config, sharers) ?? true
    const model = modelOf(config, served.client, { facts, isInProcess: given !== undefined })
    // If other backends came, it must be found out again how they are asked for tokens.
    return { served, model: known && !hasChanged ? { ...model, tokenRequest: known.model.tokenRequest } : model }
  }

  #retire(served: ServedModel, afterMs: number | undefined): void {
    // A model that cannot be closed stays in the map, and is reported when all are closed.
    const retired = served.retire(afterMs).then(
      () => void this.#retired.delete(served),
      () => {},
    )
    this.#retired.set(served, retired)
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

function modelOf(
  config: ModelConfig,
  client: ModelClient,
  { facts = {}, isInProcess }: { readonly facts: ModelFacts | undefined; readonly isInProcess: boolean },
): GatewayModel {
  const { name, upstreamName = name } = config
  const isExact = config.tokens === 'exact'
  // The built-in simulator runs in process and answers in Chat's words, whichever API the config names. Ids are of no API.
  const api = config.simulator || isExact ? 'chat' : config.api
  const { capturesTokens = api === 'chat', contextLength } = facts
  const engines = config.backends.map(({ engine }) => engine)
  const tokenRequest = tokenRequestOf(engines)
  const isSglang = engines.length > 0 && engines.every((engine) => engine === 'sglang')
  const model = {
    name,
    api,
    upstreamName,
    capturesTokens: isExact || capturesTokens,
    takesChoices: !isExact && api === 'chat' && config.backends.length > 0 && !isInProcess,
    isSglang,
    isExact,
    // Replies are read from all of their ids, so they come whole.
    tokenRequest: { ...tokenRequest, inStreams: tokenRequest.inStreams && !isExact, isAccepted: false },
    client,
  }
  return { ...model, ...(contextLength !== undefined && { contextLength }) }
}

function notSglang(name: string | undefined, able: readonly GatewayModel[]): MillraceError {
  const names = able.map((model) => model.name).join(', ')
  const offer = names === '' ? 'No model here supports it; use another API.' : `Models that support it: ${names}.`
  const which =
    name === undefined ? 'the request names no model, in a field "model"' : `model ${name} is not served by SGLang`
  const message = `/generate is an API of SGLang only, but ${which}. ${offer}`
  return new MillraceError('model_rejected', message, { data: { status: 400, param: 'model' } })
}

/** Refuses backends of an unknown model: with a misspelt name, the configured backends would be asked instead. */
function refuseUnknownBackends(models: readonly ModelConfig[], backends: object): void {
  const names = models.map(({ name }) => name)
  const unknown = unknownField(backends, names, 'backends.')
  if (unknown !== undefined)
    throw new MillraceError('config_invalid', `each key of backends must be the name of a model: ${unknown}`)
}

function checkNames({ models, awaited = 0 }: ModelOffer, aliases: Readonly<Record<string, string>>): void {
  const names = new Set(models.map(({ name }) => name))
  if (names.size === 0 && awaited === 0)
    throw new MillraceError('config_invalid', 'a gateway needs at least one model. Name a backend.')
  if (names.size < models.length) {
    throw new MillraceError(
      'config_invalid',
      'two models have the same name. Rename one, and set its upstreamName to the name that its backends use.',
    )
  }
  // With an awaited backend, a name may belong to a model that is not known yet.
  if (awaited === 0) refuseUnknownAliases(aliases, names)
}

export function refuseUnknownAliases(aliases: Readonly<Record<string, string>>, names: ReadonlySet<string>): void {
  for (const [alias, name] of Object.entries(aliases)) {
    if (names.has(name)) continue
    const message = `alias ${alias} refers to ${name}, which is not a model of the gateway; its models: ${[...names].join(', ')}`
    throw new MillraceError('config_invalid', message)
  }
}
