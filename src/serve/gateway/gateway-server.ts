import { createHmac, hash } from 'node:crypto'
import { MillraceError } from '../../errors/index.ts'
import { abortRun } from '../../eval/index.ts'
import { Gateway, type GatewayOptions, type ModelFacts, type SessionBounds } from '../../gateway/index.ts'
import { descriptorBudget } from '../../http/index.ts'
import { backendSecrets, type LimitChange, type ModelConfig } from '../../inference/index.ts'
import { LoopLag, type LoopLagWindow, Resource, type Variables } from '../../kit/index.ts'
import type { JsonObject } from '../../schema/index.ts'
import { provenance, readRunFile, redact, type RunFile, runFolder, RunStore } from '../../store/index.ts'
import { type LoggedRequest, startTelemetry, type Telemetry } from '../../telemetry/index.ts'
import { type ArealOptions, ArealWire } from '../compat/areal/areal-wire.ts'
import { CookieSessions } from '../compat/nemo-gym/cookie-sessions.ts'
import { SessionCookies } from '../compat/nemo-gym/session-cookie.ts'
import { requireFreePort } from '../http/server.ts'
import type { Readiness } from '../http/status-routes.ts'
import {
  defaultTenant,
  requireAdminKeys,
  requireOwnMachine,
  storedAdminKey,
  type TenantKey,
  unusedKeyNotice,
} from './admission.ts'
import { AddressGuard } from './address-guard.ts'
import { type BackendDirectory, BackendWatch } from './backend-directory.ts'
import type { ProbeResult } from './backend-models.ts'
import { checkedPublicUrl, defaultGatewayBounds, type GatewayBounds } from './gateway-config.ts'
import { GatewayHttpServer } from './http-server.ts'
import { type Offered, Registry } from './registry.ts'
import { GatewayTelemetry, type TokenDrift } from './telemetry.ts'

const activeMs = 5_000

export interface GatewayServerOptions {
  readonly models: readonly ModelConfig[]
  /** What their backends said of them. */
  readonly facts?: Readonly<Record<string, ModelFacts>>
  /** Where the models are from. Backends are asked again, and taken in, when they have not answered, or list other models. */
  readonly directory?: BackendDirectory
  /** Whether idle backends are asked for their lists every ten seconds, for `/ready`. Default: true. */
  readonly pollBackends?: boolean | undefined
  readonly aliases?: Readonly<Record<string, string>> | undefined
  /** Without any, one is made and kept in the run's folder; only for a host that no other machine reaches. */
  readonly keys: readonly TenantKey[]
  /** What else must not be written down, wherever in the configuration it stands. */
  readonly secrets?: readonly string[]
  readonly host?: string
  readonly port: number
  /** Where clients reach it, for the urls of sessions. If not given: http, and the host that they name themselves. */
  readonly publicUrl?: string | undefined
  readonly bounds?: Partial<GatewayBounds & SessionBounds> | undefined
  /** What to do with tools that only the client's provider runs, such as its web search. Default: `leave-out`. */
  readonly hostedTools?: GatewayOptions['hostedTools'] | undefined
  /** What requests do while all backends of their model are paused. Default: `wait`. */
  readonly whenPaused?: GatewayOptions['whenPaused'] | undefined
  /** The hosts, addresses and networks of backends that may be registered over HTTP. Default: all but link-local ones. */
  readonly allowBackends?: readonly string[] | undefined
  /** Whether it is a model server of NeMo Gym, too: then requests to models need no key. Only on a host that no other machine reaches. */
  readonly nemoGym?: boolean | undefined
  /** If given, AReaL's clients may use it, too. */
  readonly areal?: ArealOptions | undefined
  readonly run: GatewayRun
  /** Where backends' keys and OpenTelemetry's variables are looked up. */
  readonly env: Variables
  readonly onRequest?: (request: LoggedRequest) => void
  readonly onAlarm?: (session: string, alarms: readonly string[]) => void
  /** Hears of a backend what nobody asked for: its pause ended by itself, or it does not resume. */
  readonly onFleetAlarm?: (message: string) => void
  /** Hears of a model's 1st, 10th, 100th… turn whose prompt does not begin with the tokens of the turn before it. */
  readonly onDrift?: (drift: TokenDrift) => void
  /** Hears of a backend: that it has answered, serves other models than before, or that there is another reason why it cannot be used. */
  readonly onBackend?: (result: ProbeResult) => void
  /** Hears of a backend that failed so often that requests wait until it is back (`parked`), and that it is (`released`), among other changes. Must not throw. */
  readonly onLimitChange?: (change: LimitChange) => void
  readonly onFault?: (error: MillraceError) => void
  readonly signal?: AbortSignal
}

export class GatewayServer extends Resource {
  readonly gateway: Gateway
  readonly url: string
  readonly routes: readonly string[]
  readonly madeKey: string | undefined
  readonly notices: readonly string[]
  readonly #store: RunStore
  readonly #lag: LoopLag
  readonly #owned: AsyncDisposableStack
  #draining: Promise<void> | undefined

  private constructor(
    parts: Pick<GatewayServer, 'gateway' | 'url' | 'routes' | 'madeKey' | 'notices'> & {
      readonly store: RunStore
      readonly lag: LoopLag
      readonly owned: AsyncDisposableStack
    },
  ) {
    super()
    this.gateway = parts.gateway
    this.url = parts.url
    this.routes = parts.routes
    this.madeKey = parts.madeKey
    this.notices = parts.notices
    this.#store = parts.store
    this.#lag = parts.lag
    this.#owned = parts.owned
    // Before the store is closed: how it ended is written by then. Whoever drains hears of what fails.
    this.#owned.defer(() => this.#draining?.catch(() => undefined))
  }

  /** Throws what `open` would for a port or a run that is taken, before work that would then be in vain. */
  static async requireFree(options: Pick<GatewayServerOptions, 'host' | 'port' | 'run'>): Promise<void> {
    RunStore.requireFree(gatewayFolder(options.run))
    await requireFreePort(options.host ?? '127.0.0.1', options.port)
  }

  static async open(options: GatewayServerOptions): Promise<GatewayServer> {
    const { run, host = '127.0.0.1', signal } = options
    // Keys of registered backends are added to it.
    const env = { ...options.env }
    // Before a run is made for it.
    requireAdminKeys(host, options.keys)
    if (options.nemoGym) requireOwnMachine(host)
    const publicUrl = options.publicUrl === undefined ? undefined : checkedPublicUrl(options.publicUrl)
    const origin = await provenance()
    await using owned = new AsyncDisposableStack()
    const description = descriptionOf(options, options.models)
    const store = await RunStore.open({
      folder: gatewayFolder(run),
      create: { name: run.name, configDigest, config: described(description), provenance: { ...origin } },
      ...(signal && { signal }),
    })
    let hasStarted = false
    owned.defer(() => (hasStarted ? store.close() : abortRun({ store, name: run.name, folder: store.folder })))
    const madeKey = options.keys.length > 0 ? undefined : storedAdminKey(store.folder)
    const adminKeys = madeKey === undefined ? options.keys : [{ tenant: defaultTenant, key: madeKey }]
    // Somebody may have written into the file.
    requireAdminKeys(host, adminKeys)
    const secrets = [...(options.secrets ?? []), ...adminKeys.map(({ key }) => key)]
    const telemetry = owned.use(startTelemetry({ env, run: run.name, metrics: true }))
    const { onRequest, onAlarm, onFleetAlarm, onDrift, onFault, onLimitChange } = options
    const { bounds, aliases, directory, hostedTools, whenPaused } = options
    const { registry } = telemetry
    owned.use(
      new GatewayTelemetry({ folder: store.folder, registry, onRequest, onAlarm, onFleetAlarm, onDrift, onFault }),
    )
    const lag = owned.use(new LoopLag())
    const guard = new AddressGuard(options.allowBackends)
    const backends = new Registry({
      folder: store.folder,
      guard,
      env,
      base: () => offerOf(options),
    })
    const { models, facts } = backends.offer
    const gateway: Gateway = owned.use(
      await Gateway.open({
        store,
        models,
        facts,
        env,
        secrets,
        adminKeys,
        issuedKeys: backends.keys,
        lookupFor: (url) => (backends.has(url) ? guard.lookup : undefined),
        ...(directory && { awaited: directory.unlisted }),
        ...(aliases && { aliases }),
        ...(bounds && { bounds }),
        ...(hostedTools && { hostedTools }),
        ...(whenPaused && { whenPaused }),
        ...(onLimitChange && { onLimitChange }),
        takesGivenKeys: options.areal !== undefined,
      }),
    )
    const areal =
      options.areal &&
      owned.use(
        new ArealWire({
          ...options.areal,
          gateway,
          store,
          publicUrl,
          bounds: { ...defaultGatewayBounds, ...bounds },
        }),
      )
    backends.serve(gateway)
    const cookieSessions = options.nemoGym
      ? owned.use(cookieSessionsOf({ gateway, host, adminKeys, run: run.name, bounds: bounds ?? {} }))
      : undefined
    const httpServer: GatewayHttpServer = owned.use(
      await GatewayHttpServer.open({
        gateway,
        registry: backends,
        reader: store.reader,
        metrics: metricsOf(telemetry, { store, gateway, lag, directory, httpServer: () => httpServer }),
        // They are of all tenants, and one is nobody's to know but whose gateway it is.
        operatorTenant: operatorOf(adminKeys),
        readiness: () => readinessOf(store, gateway, directory),
        version: origin.millrace,
        host,
        port: options.port,
        maxSockets: clientSockets(models, directory),
        ...(publicUrl !== undefined && { publicUrl }),
        ...(bounds && { bounds }),
        ...(cookieSessions && { cookieSessions }),
        ...(areal && { areal }),
        ...(onFault && { onFault }),
      }),
    )
    if (directory) {
      // What fails here is no problem of the backend, which is served all the same.
      const attempt = (step: () => void): void => {
        try {
          step()
        } catch (error) {
          onFault?.(MillraceError.from(error, 'internal'))
        }
      }
      // Also after a problem: requests are kept from a backend that cannot be used.
      const takeIn = (result: ProbeResult): void => {
        attempt(() => gateway.offer(backends.offer))
        attempt(() => store.amend({ config: described(descriptionOf(options, directory.models)) }))
        attempt(() => options.onBackend?.(result))
      }
      owned.use(
        new BackendWatch({
          directory,
          polls: options.pollBackends ?? true,
          isActive: (backend, withinMs) => gateway.isActive(backend, withinMs),
          onAnswer: takeIn,
          onProblem: takeIn,
        }),
      )
    }
    const { url, routes } = httpServer
    const unusedKey = unusedKeyNotice(store.folder, options.keys)
    const notices = [...telemetry.notices, ...(unusedKey === undefined ? [] : [unusedKey])]
    // An earlier launch may have served something else.
    store.amend({ config: described(description) })
    hasStarted = true
    return new GatewayServer({ gateway, url, routes, madeKey, notices, store, lag, owned: owned.move() })
  }

  /** Aborts when nothing more can be recorded: then nothing more can be answered either. */
  get failure(): AbortSignal {
    return this.#store.failure
  }

  /** How late the loops of the HTTP server and of the journal's writer run. */
  lag(): { readonly front: LoopLagWindow; readonly store: LoopLagWindow } {
    return { front: this.#lag.snapshot(), store: this.#store.lag() }
  }

  /** Takes no new work; resolves when what runs has ended and is on disk. The server stays open, to say so. */
  drain(): Promise<void> {
    return (this.#draining ??= this.#drain())
  }

  async #drain(): Promise<void> {
    await this.gateway.drain()
    // Closed meanwhile, it has abandoned what ran.
    await this.#store.finish('unfinished', { end: this.isClosed ? 'stopped' : 'drained' })
  }

  /** The server last of those that answer: whoever still waits is told why it ends. */
  protected async onClose(): Promise<void> {
    await using parts = new AsyncDisposableStack()
    parts.use(this.#owned)
    parts.use(this.gateway)
  }
}

/** What it serves without registered backends. */
function offerOf({ models, facts = {}, directory }: GatewayServerOptions): Offered {
  if (!directory) return { models, facts }
  return { models: directory.models, facts: directory.facts, awaited: directory.unlisted }
}

function operatorOf(keys: readonly TenantKey[]): string {
  const [only = defaultTenant, ...others] = new Set(keys.map(({ tenant }) => tenant))
  return others.length === 0 ? only : defaultTenant
}

/** The sessions of NeMo Gym's clients. Their cookies stay valid after a restart, as the sessions do, unless the key is another one. */
function cookieSessionsOf(parts: {
  readonly gateway: Gateway
  readonly host: string
  readonly adminKeys: readonly TenantKey[]
  readonly run: string
  readonly bounds: Partial<GatewayBounds>
}): CookieSessions {
  const { gateway, host, adminKeys, run } = parts
  const owner = adminKeys.find(({ tenant }) => tenant === defaultTenant) ?? adminKeys[0]
  if (!owner) throw new MillraceError('internal', 'a gateway has at least one admin key')
  const { tenant, key } = owner
  const signing = createHmac('sha256', key).update('cookies of NeMo Gym').digest()
  // Not the name of our agents' cookies: an agent of NeMo Gym may send both to a verifier.
  const cookies = new SessionCookies('MillraceGateway', run, signing)
  return new CookieSessions({ gateway, tenant, host, cookies, bounds: { ...defaultGatewayBounds, ...parts.bounds } })
}

/** Clients' and backends' sockets share one budget: what backends can never use of their half is the clients'. */
function clientSockets(models: readonly ModelConfig[], directory?: BackendDirectory): number {
  const half = descriptorBudget()
  // One that has yet to say what it serves may list any number of models.
  let upstream = directory && directory.unlisted > 0 ? half : 0
  for (const { maxConcurrency, backends } of models) upstream += maxConcurrency * backends.length
  return 2 * half - Math.min(half, upstream)
}

function metricsOf(
  telemetry: Telemetry,
  parts: {
    readonly store: RunStore
    readonly gateway: Gateway
    readonly lag: LoopLag
    readonly directory: BackendDirectory | undefined
    readonly httpServer: () => GatewayHttpServer
  },
): ReturnType<Telemetry['metrics']> {
  const { store, gateway, lag } = parts
  return telemetry.metrics({
    models: () => gateway.status().models,
    loops: () => ({ front: lag.snapshot(), store: store.lag() }),
    journal: () => ({ pressure: store.journal.pressure, ...store.status() }),
    gateway: () => ({
      openSessions: gateway.status().openSessions,
      awaitedBackends: parts.directory?.awaited.length ?? 0,
      backends: gateway.fleet.list(),
      ...parts.httpServer().figures,
    }),
  })
}

function readinessOf(store: RunStore, gateway: Gateway, directory: BackendDirectory | undefined): Readiness {
  if (store.failure.aborted) return { isReady: false, why: 'the store accepts no more records' }
  const { state, models } = gateway.status()
  if (state !== 'open') return { isReady: false, why: `the gateway is ${state}` }
  // Those without a limit are not offered any more.
  const offered = models.filter(({ limit }) => limit > 0)
  if (offered.length > 0 && offered.every(({ isShut }) => isShut)) {
    return {
      isReady: false,
      why: 'its backends are paused, overloaded or unreachable: requests wait until one answers',
    }
  }
  if (!directory || directory.isReachable((backend) => gateway.isActive(backend, activeMs))) return { isReady: true }
  const usable = new Set(directory.usable.flatMap(({ backends }) => backends.map(({ url }) => url)))
  if (usable.size > 0) return { isReady: false, why: `none of its backends can be reached (${usable.size})` }
  // Only the codes: whoever asks has no key.
  const codes = new Set(directory.unusable.map(({ code }) => code))
  const awaited = directory.awaited.length
  if (codes.size === 0) return { isReady: false, why: `no backend could be used since the start (${awaited})` }
  const why = `none of its backends can be used (${awaited}): ${[...codes].join(', ')}; see the log`
  return { isReady: false, why }
}

function descriptionOf(options: GatewayServerOptions, models: readonly ModelConfig[]): GatewayDescription {
  const { aliases = {}, bounds = {}, keys, secrets = [], env } = options
  const config = JSON.parse(JSON.stringify({ models, aliases, bounds })) as JsonObject
  // One may have got into an alias or a name.
  const upstream = models.flatMap(({ backends }) => backends.flatMap((backend) => backendSecrets(backend, env)))
  return { config, secrets: [...secrets, ...keys.map(({ key }) => key), ...upstream] }
}

interface GatewayRun {
  readonly root: string
  readonly name: string
}

/** A name is all it takes to go on with a gateway's sessions: its backends may differ from launch to launch. */
const configDigest = hash('sha256', 'millrace gateway').slice(0, 16)

interface GatewayDescription {
  readonly config: JsonObject
  readonly secrets: readonly string[]
}

function gatewayFolder({ root, name }: GatewayRun): string {
  const folder = runFolder(root, name)
  const existing = readRunFile(folder)
  if (existing && existing.config['kind'] !== 'gateway') {
    throw new MillraceError(
      'run_mismatch',
      `run ${name} belongs to an evaluation or a server of rollouts; choose another name for the gateway's run with --run (run.name)`,
      { data: { run: name } },
    )
  }
  return folder
}

function described({ config, secrets }: GatewayDescription): RunFile['config'] {
  return redact({ kind: 'gateway', ...config }, secrets).value
}
