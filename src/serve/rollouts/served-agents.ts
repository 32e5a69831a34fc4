import { MillraceError } from '../../errors/index.ts'
import { nearestNames, onAbort, Resource } from '../../kit/index.ts'
import { type Metrics, ProcessCounts, RunsMetrics } from '../../telemetry/index.ts'
import type { Readiness } from '../http/status-routes.ts'
import { RolloutService } from './rollout-service.ts'
import type { ServiceOptions } from './service-parts.ts'

export interface ServedAgentOptions extends ServiceOptions {
  /** Its name in paths; the environment's own if not given. */
  readonly name?: string
}

/** More would be a mistake in a file: each has a run, codec threads and models of its own. */
const maxServices = 64

/** What a path carries as it is. */
const namePattern = /^[\w.-]{1,64}$/

/** The services of one port by name, each with its own run. The first is the one that is meant where no name is given. */
export class ServedAgents extends Resource {
  readonly metrics: Metrics
  readonly #services: ReadonlyMap<string, RolloutService>
  readonly #owned: AsyncDisposableStack
  readonly #failure = new AbortController()

  private constructor(services: ReadonlyMap<string, RolloutService>, owned: AsyncDisposableStack, metrics: Metrics) {
    super()
    this.#services = services
    this.#owned = owned
    this.metrics = metrics
    for (const { failure } of services.values()) {
      onAbort(failure, { handleEvent: () => this.#onFailure(failure.reason) })
    }
  }

  /** Opens the services one after another. If one of them cannot be opened, those before it are closed. */
  static async open(all: readonly ServedAgentOptions[]): Promise<ServedAgents> {
    if (all.length === 0) throw invalid('a server needs at least one environment')
    if (all.length > maxServices) throw invalid(`a server has at most ${maxServices} environments, not ${all.length}`)
    requireNames(all.flatMap(({ name }) => name ?? []))
    await using owned = new AsyncDisposableStack()
    const counts = all.length > 1 ? owned.use(new ProcessCounts()) : undefined
    const services = new Map<string, RolloutService>()
    for (const { name, ...options } of all) {
      const service = owned.use(await RolloutService.open(options, counts))
      const own = name ?? nameFrom(service.environment.name)
      if (services.has(own)) throw sameName(own)
      services.set(own, service)
    }
    const [first] = services.values()
    if (!first) throw invalid('a server needs at least one environment')
    const metrics = counts ? new RunsMetrics(counts.registry, metricsByRun(services)) : first.metrics
    return new ServedAgents(services, owned.move(), metrics)
  }

  /** One service that somebody else opened, and closes. */
  static of(service: RolloutService): ServedAgents {
    const services = new Map([[nameFrom(service.environment.name), service]])
    return new ServedAgents(services, new AsyncDisposableStack(), service.metrics)
  }

  get names(): readonly string[] {
    return [...this.#services.keys()]
  }

  get entries(): readonly (readonly [name: string, service: RolloutService])[] {
    return [...this.#services]
  }

  get(name?: string): RolloutService {
    const [first] = this.#services.values()
    const service = name === undefined ? first : this.#services.get(name)
    if (service) return service
    const [near] = nearestNames(name ?? '', this.names)
    const hint = near === undefined ? '' : ` Did you mean ${near}?`
    const message = `there is no agent ${name ?? ''}; this server has ${this.names.join(', ')}.${hint}`
    throw new MillraceError('usage', message, { data: { status: 404 } })
  }

  /** Aborts once no service can run anything more, with the failure of the last. */
  get failure(): AbortSignal {
    return this.#failure.signal
  }

  readiness(): Readiness {
    const whys: string[] = []
    for (const [name, service] of this.#services) {
      const found = service.readiness()
      if (!found.isReady) whys.push(this.#services.size === 1 ? found.why : `${name}: ${found.why}`)
    }
    return whys.length === 0 ? { isReady: true } : { isReady: false, why: whys.join('; ') }
  }

  /** All at once: none accepts anything while another one still runs. */
  async drain(): Promise<void> {
    await Promise.all(Array.from(this.#services.values(), (service) => service.drain()))
  }

  protected async onClose(): Promise<void> {
    await this.#owned.disposeAsync()
  }

  #onFailure(reason: unknown): void {
    for (const { failure } of this.#services.values()) if (!failure.aborted) return
    this.#failure.abort(reason)
  }
}

function metricsByRun(services: ReadonlyMap<string, RolloutService>): Map<string, RolloutService['metrics']> {
  return new Map(Array.from(services.values(), ({ info, metrics }) => [info.name, metrics]))
}

function nameFrom(environment: string): string {
  return environment.replaceAll(/[^\w.-]+/g, '-').slice(0, 64)
}

function requireNames(names: readonly string[]): void {
  const seen = new Set<string>()
  for (const name of names) {
    if (!namePattern.test(name)) {
      throw invalid(
        `${JSON.stringify(name)} is not a name for an agent: it has 1 to 64 letters, digits or any of . _ -`,
      )
    }
    if (seen.has(name)) throw sameName(name)
    seen.add(name)
  }
}

function sameName(name: string): MillraceError {
  return invalid(`two environments have the name ${name}; give one of them another, as other=./environment.ts`)
}

function invalid(message: string): MillraceError {
  return new MillraceError('config_invalid', message)
}
